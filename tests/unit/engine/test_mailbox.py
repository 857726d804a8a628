import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from inferd.engine.mailbox import Mailbox


async def test_what_is_there_is_taken_at_once_and_in_order(autojump_clock):
    box = Mailbox[int]()
    for item in (3, 1, 2):
        box.put(item)
    assert await box.take() == [3, 1, 2]
    box.put(4)
    assert await box.take() == [4]
    assert trio.current_time() == 0


async def test_an_empty_box_is_waited_for(autojump_clock, nursery):
    box = Mailbox[int]()
    nursery.start_soon(put_later, box)
    with trio.fail_after(10):
        assert await box.take() == [1]
    assert trio.current_time() == 5


async def put_later(box):
    await trio.sleep(5)
    box.put(1)


async def test_a_box_that_was_emptied_is_waited_for_again(autojump_clock):
    box = Mailbox[int]()
    box.put(1)
    await box.take()
    with trio.move_on_after(5) as scope:
        await box.take()
    assert scope.cancelled_caught


async def test_a_failure_comes_after_the_items_and_stays(autojump_clock):
    box = Mailbox[int]()
    box.put(1)
    box.fail(ZeroDivisionError())
    box.put(2)
    assert await box.take() == [1, 2]
    for _ in range(2):
        with trio.fail_after(5), pytest.raises(ZeroDivisionError):
            await box.take()


async def test_a_failure_wakes_who_waits(autojump_clock, nursery):
    box = Mailbox[int]()
    outcome = []

    async def take():
        try:
            await box.take()
        except ZeroDivisionError as error:
            outcome.append(error)

    nursery.start_soon(take)
    await wait_all_tasks_blocked()
    failure = ZeroDivisionError()
    box.fail(failure)
    await wait_all_tasks_blocked()
    assert outcome == [failure]


async def test_a_cancelled_take_loses_nothing(autojump_clock):
    box = Mailbox[int]()
    with trio.CancelScope() as scope:
        scope.cancel()
        box.put(1)
        await box.take()
    assert scope.cancelled_caught
    assert await box.take() == [1]


async def test_what_waits_until_it_is_over_is_cut_short_by_the_last_item(
    autojump_clock, nursery
):
    box = Mailbox[int]()

    async def say():
        box.put(1)
        await trio.sleep(5)
        box.put_last(2)

    nursery.start_soon(say)
    with box.until_over():
        await trio.sleep(1000)
    assert trio.current_time() == 5
    assert await box.take() == [1, 2]


async def test_what_waits_until_it_is_over_is_cut_short_by_a_failure(autojump_clock):
    box = Mailbox[int]()
    box.fail(ZeroDivisionError())
    with box.until_over():
        await trio.sleep(1000)
    assert trio.current_time() == 0
    with pytest.raises(ZeroDivisionError):
        await box.take()


async def test_the_last_item_may_be_replaced_until_it_is_taken():
    box = Mailbox[int]()
    assert box.last is None
    box.put(1)
    box.put(2)
    assert box.last == 2
    box.put_over(3)
    assert await box.take() == [1, 3]
    assert box.last is None
