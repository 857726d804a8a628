from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from inferd.engine.channel.result_queue import ResultQueue


async def test_queued_items_are_taken_at_once_and_in_order(autojump_clock):
    queue = ResultQueue[int]()
    for item in (3, 1, 2):
        queue.put(item)
    assert await queue.get_all() == [3, 1, 2]
    queue.put(4)
    assert await queue.get_all() == [4]
    assert trio.current_time() == 0


async def test_an_empty_queue_is_waited_for(autojump_clock, nursery):
    queue = ResultQueue[int]()
    nursery.start_soon(put_later, queue)
    with trio.fail_after(10):
        assert await queue.get_all() == [1]
    assert trio.current_time() == 5


async def put_later(queue):
    await trio.sleep(5)
    queue.put(1)


async def test_an_emptied_queue_is_waited_for_again(autojump_clock):
    queue = ResultQueue[int]()
    queue.put(1)
    await queue.get_all()
    with trio.move_on_after(5) as scope:
        await queue.get_all()
    assert scope.cancelled_caught


async def test_a_failure_comes_after_the_items_and_stays(autojump_clock):
    queue = ResultQueue[int]()
    queue.put(1)
    queue.fail(ZeroDivisionError())
    queue.put(2)
    assert await queue.get_all() == [1, 2]
    for _ in range(2):
        with trio.fail_after(5), pytest.raises(ZeroDivisionError):
            await queue.get_all()


async def test_a_failure_wakes_a_waiting_task(autojump_clock, nursery):
    queue = ResultQueue[int]()
    outcome = []

    async def take():
        try:
            await queue.get_all()
        except ZeroDivisionError as error:
            outcome.append(error)

    nursery.start_soon(take)
    await wait_all_tasks_blocked()
    failure = ZeroDivisionError()
    queue.fail(failure)
    await wait_all_tasks_blocked()
    assert outcome == [failure]


async def test_a_cancelled_take_loses_nothing(autojump_clock):
    queue = ResultQueue[int]()
    with trio.CancelScope() as scope:
        scope.cancel()
        queue.put(1)
        await queue.get_all()
    assert scope.cancelled_caught
    assert await queue.get_all() == [1]


async def test_the_final_item_cancels_a_block(autojump_clock, nursery):
    queue = ResultQueue[int]()

    async def say():
        queue.put(1)
        await trio.sleep(5)
        queue.put_final(2)

    nursery.start_soon(say)
    with queue.until_over():
        await trio.sleep(1000)
    assert trio.current_time() == 5
    assert await queue.get_all() == [1, 2]


async def test_a_failure_cancels_a_block(autojump_clock):
    queue = ResultQueue[int]()
    queue.fail(ZeroDivisionError())
    with queue.until_over():
        await trio.sleep(1000)
    assert trio.current_time() == 0
    with pytest.raises(ZeroDivisionError):
        await queue.get_all()


async def test_the_last_item_may_be_replaced_until_it_is_taken():
    queue = ResultQueue[int]()
    assert queue.last is None
    queue.put(1)
    queue.put(2)
    assert queue.last == 2
    queue.replace_last(3)
    assert await queue.get_all() == [1, 3]
    assert queue.last is None


class Taker:
    """A task in ``pass_to`` that takes what it is told, up to an item that is not positive."""

    def __init__(self, queue: ResultQueue[int]) -> None:
        self.taken: list[list[int]] = []
        self.ended: list[Exception | None] = []
        self.scope = trio.CancelScope()
        self._queue = queue

    def take(self, items: list[int]) -> bool:
        self.taken.append(items)
        if items[-1] < 0:
            raise ZeroDivisionError
        return items[-1] > 0

    async def run(self) -> None:
        with self.scope:
            try:
                await self._queue.pass_to(self.take)
            except ZeroDivisionError as error:
                self.ended.append(error)
            else:
                self.ended.append(None)


@asynccontextmanager
async def taker(queue):
    async with trio.open_nursery() as nursery:
        each = Taker(queue)
        nursery.start_soon(each.run)
        await wait_all_tasks_blocked()
        yield each
        nursery.cancel_scope.cancel()


async def test_items_are_handed_over_together_and_wake_nobody(autojump_clock):
    queue = ResultQueue[int]()
    queue.put(1)
    async with taker(queue) as task:
        assert task.taken == [[1]]
        assert [queue.add(item) for item in (2, 3)] == [True, False]
        queue.hand_over()
        assert task.taken == [[1], [2, 3]]
        await wait_all_tasks_blocked()
        assert not task.ended


async def test_who_takes_no_more_is_woken_and_is_handed_nothing(autojump_clock):
    queue = ResultQueue[int]()
    async with taker(queue) as task:
        queue.add(0)
        queue.hand_over()
        assert not queue.add(4)  # before the task has run
        queue.hand_over()
        await wait_all_tasks_blocked()
        assert (task.taken, task.ended) == ([[0]], [None])
        assert await queue.get_all() == [4]


async def test_an_error_in_what_is_called_is_the_waiting_tasks(autojump_clock):
    queue = ResultQueue[int]()
    async with taker(queue) as task:
        queue.add(-1)
        queue.hand_over()
        await wait_all_tasks_blocked()
        [error] = task.ended
        assert isinstance(error, ZeroDivisionError)


async def test_a_cancelled_task_is_handed_nothing_and_loses_nothing(autojump_clock):
    queue = ResultQueue[int]()
    async with taker(queue) as task:
        task.scope.cancel()
        await wait_all_tasks_blocked()
        queue.add(1)
        queue.hand_over()
        assert (task.taken, await queue.get_all()) == ([], [1])


@pytest.mark.parametrize("is_handed_over", [False, True])
async def test_a_failure_comes_after_what_was_not_handed_over(
    is_handed_over, autojump_clock
):
    queue = ResultQueue[int]()
    async with taker(queue) as task:
        queue.add(1)
        if is_handed_over:
            queue.hand_over()
        queue.fail(ZeroDivisionError())
        await wait_all_tasks_blocked()
        assert task.taken == [[1]]
        assert len(task.ended) == 1


async def test_an_item_that_is_put_is_taken_by_the_task_itself(autojump_clock):
    queue = ResultQueue[int]()
    async with taker(queue) as task:
        queue.put(1)
        assert not queue.add(2)
        await wait_all_tasks_blocked()
        assert (task.taken, task.ended) == ([[1, 2]], [])
