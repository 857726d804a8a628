from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import trio
import trio.testing

from inferd.limits.server import LOOP_PASS_S
from inferd.server.event_loop.scheduler import TASK_USER, LoopScheduler
from tests.fakes.clock import Clock

ANNA, BERT, CARL = 1, 2, 3


class Work:
    """Tasks of users that take turns, each turn of a given cost."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.clock = Clock()
        self.loop = LoopScheduler(self.clock)
        self.done: list[int | None] = []
        self.by_pass: list[int] = []
        self._nursery = nursery

    def begin(self, owner: int | None, n_pieces: int, cost_s: float) -> None:
        self._nursery.start_soon(self._work, owner, n_pieces, cost_s)

    async def _work(self, owner: int | None, n_pieces: int, cost_s: float) -> None:
        TASK_USER.set(owner)
        for _ in range(n_pieces):
            await self.loop.turn()
            self.done.append(owner)
            self.clock.now += cost_s
            await trio.lowlevel.checkpoint()


@asynccontextmanager
async def working() -> AsyncIterator[Work]:
    async with trio.open_nursery() as nursery:
        work = Work(nursery)
        with work.loop.measuring():
            nursery.start_soon(work.loop.run)
            yield work
            nursery.cancel_scope.cancel()


async def settled() -> None:
    await trio.testing.wait_all_tasks_blocked()


async def test_a_pass_ends_with_the_first_task_over_its_time(autojump_clock):
    async with working() as work:
        for _ in range(100):
            work.begin(ANNA, 10, LOOP_PASS_S / 4)
        n_max = 0
        while len(work.done) < 1000:
            n_before = len(work.done)
            await trio.lowlevel.checkpoint()
            n_max = max(n_max, len(work.done) - n_before)
        assert n_max <= 2 * 5  # one pass may be seen as two halves
        await settled()


async def test_a_new_user_is_served_before_the_rest_of_one_who_floods(autojump_clock):
    async with working() as work:
        for _ in range(200):
            work.begin(ANNA, 5, LOOP_PASS_S)
        while len(work.done) < 300:
            await trio.lowlevel.checkpoint()
        work.begin(BERT, 3, LOOP_PASS_S)
        await settled()
    places = [place for place, owner in enumerate(work.done) if owner == BERT]
    assert len(work.done) == 1003
    assert places[-1] < 300 + 16


async def test_a_burst_delays_one_who_asks_steadily_by_a_few_passes(autojump_clock):
    async with working() as work:
        for _ in range(100):
            work.begin(BERT, 1, LOOP_PASS_S)
        await settled()
        for _ in range(200):
            work.begin(ANNA, 5, LOOP_PASS_S / 4)
        await trio.lowlevel.checkpoint()
        n_before = len(work.done)
        work.begin(BERT, 1, LOOP_PASS_S / 4)
        while BERT not in work.done[n_before:]:
            await trio.lowlevel.checkpoint()
        assert len(work.done) - n_before < 40  # as many as eight passes have time for


async def test_the_user_with_the_least_time_has_one_turn_in_a_pass_without_time(
    autojump_clock,
):
    clock = Clock()
    loop, me = LoopScheduler(clock), trio.lowlevel.current_task()

    async def begins(user: int) -> bool:
        TASK_USER.set(user)
        with trio.move_on_after(1) as scope:
            await loop.begin()
        return not scope.cancelled_caught

    loop.after_io_wait(0)
    loop.before_task_step(me)
    assert await begins(ANNA)
    clock.now += LOOP_PASS_S
    loop.after_task_step(me)
    assert not await begins(ANNA)
    assert await begins(BERT)
    assert not await begins(BERT)
    loop.call_later(ANNA, lambda: None)  # waits, with less time than the next
    loop._charge(CARL, 2 * LOOP_PASS_S)
    assert not await begins(CARL)


async def test_two_users_who_flood_get_equal_time_whatever_a_task_takes(autojump_clock):
    async with working() as work:
        for _ in range(10):
            work.begin(ANNA, 100, 10 * LOOP_PASS_S)
        for _ in range(100):
            work.begin(BERT, 100, LOOP_PASS_S)
        while work.done.count(ANNA) < 50:
            await trio.lowlevel.checkpoint()
        assert 350 <= work.done.count(BERT) <= 650


async def test_a_single_user_and_tasks_without_a_user_do_not_wait(autojump_clock):
    async with working() as work:
        work.begin(None, 5, 100 * LOOP_PASS_S)
        work.begin(ANNA, 5, LOOP_PASS_S / 100)
        for _ in range(7):
            await trio.lowlevel.checkpoint()
        assert work.done.count(ANNA) == work.done.count(None) == 5


async def test_without_measuring_nobody_waits(autojump_clock):
    loop = LoopScheduler()
    TASK_USER.set(ANNA)
    for _ in range(100):
        await loop.turn()
    TASK_USER.set(None)


async def test_what_is_called_later_is_called_in_turn_and_charged(autojump_clock):
    async with working() as work:
        called: list[int] = []

        def call(number: int) -> None:
            called.append(number)
            work.clock.now += LOOP_PASS_S

        for number in range(50):
            work.loop.call_later(ANNA, partial(call, number))
        assert len(called) < 3
        work.loop.call_later(BERT, lambda: called.append(-1))
        await settled()
    assert sorted(called) == list(range(-1, 50))
    assert called.index(-1) < 5
    assert [each for each in called if each >= 0] == list(range(50))


async def test_tasks_that_are_started_in_turn_begin_while_the_pass_has_time(
    autojump_clock,
):
    async with working() as work, trio.open_nursery() as started:
        begun: list[int] = []

        async def begin(number: int) -> None:
            TASK_USER.set(ANNA)
            await work.loop.begin()
            begun.append(number)
            work.clock.now += 2 * LOOP_PASS_S

        for number in range(50):
            work.loop.call_later(ANNA, partial(started.start_soon, begin, number))
        n_max = 0
        while len(begun) < 50:
            n_before = len(begun)
            await trio.lowlevel.checkpoint()
            n_max = max(n_max, len(begun) - n_before)
        assert n_max <= 2  # one pass may be seen as two halves
    assert sorted(begun) == list(range(50))


async def test_a_cancelled_task_does_not_block_others(autojump_clock):
    async with working() as work, trio.open_nursery() as waiting:
        for _ in range(50):
            waiting.start_soon(work._work, ANNA, 1000, LOOP_PASS_S)
        while len(work.done) < 20:
            await trio.lowlevel.checkpoint()
        waiting.cancel_scope.cancel()
    assert not work.loop._queue


async def test_work_for_a_user_in_another_task_is_charged_once(autojump_clock):
    clock = Clock()
    loop, me = LoopScheduler(clock), trio.lowlevel.current_task()

    def work(seconds: float) -> bool:
        clock.now += seconds
        return True

    TASK_USER.set(ANNA)
    charged = loop.charged(work)
    TASK_USER.set(None)
    assert loop.charged(work) is work

    async def other_task() -> None:
        assert charged(5.0)
        assert loop._spent_s == 5

    with loop.measuring():
        loop.before_task_step(me)
        assert charged(3.0)  # the instrument measures this task's own steps
        assert not loop._spent_s
        loop.after_task_step(me)
        assert charged(2.0)  # while trio waits for events, no task runs
        assert loop._spent_s == 2
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other_task)
