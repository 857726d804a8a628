import gc
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import trio
import trio.testing

from inferd.server.limits import COLLECT_S, FULL_COLLECTION_PART, PASS_S, YOUNG_OBJECTS
from inferd.server.loop import OWNER, Loop, collect_young, rare_collections

ANNA, BERT = 1, 2


class Clock:
    """Processor time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Work:
    """Tasks of users that do pieces of work, each as long as it is told."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.clock = Clock()
        self.loop = Loop(self.clock)
        self.done: list[int | None] = []
        self.by_pass: list[int] = []
        self._nursery = nursery

    def begin(self, owner: int | None, n_pieces: int, cost_s: float) -> None:
        self._nursery.start_soon(self._work, owner, n_pieces, cost_s)

    async def _work(self, owner: int | None, n_pieces: int, cost_s: float) -> None:
        OWNER.set(owner)
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


async def test_each_pass_has_so_much_time_and_one_piece_more(autojump_clock):
    async with working() as work:
        for _ in range(100):
            work.begin(ANNA, 10, PASS_S / 4)
        n_most = 0
        while len(work.done) < 1000:
            n_before = len(work.done)
            await trio.lowlevel.checkpoint()
            n_most = max(n_most, len(work.done) - n_before)
        assert n_most <= 2 * 5  # one pass may be seen as two halves
        await settled()


async def test_who_comes_is_served_before_the_rest_of_who_floods(autojump_clock):
    async with working() as work:
        for _ in range(200):
            work.begin(ANNA, 5, PASS_S)
        while len(work.done) < 300:
            await trio.lowlevel.checkpoint()
        work.begin(BERT, 3, PASS_S)
        await settled()
    places = [place for place, owner in enumerate(work.done) if owner == BERT]
    assert len(work.done) == 1003
    assert places[-1] < 300 + 16


async def test_two_who_flood_get_as_much_time_whatever_a_piece_takes(autojump_clock):
    async with working() as work:
        for _ in range(10):
            work.begin(ANNA, 100, 10 * PASS_S)
        for _ in range(100):
            work.begin(BERT, 100, PASS_S)
        while work.done.count(ANNA) < 50:
            await trio.lowlevel.checkpoint()
        assert 350 <= work.done.count(BERT) <= 650


async def test_an_only_one_and_who_works_for_nobody_wait_for_nothing(autojump_clock):
    async with working() as work:
        work.begin(None, 5, 100 * PASS_S)
        work.begin(ANNA, 5, PASS_S / 100)
        for _ in range(7):
            await trio.lowlevel.checkpoint()
        assert work.done.count(ANNA) == work.done.count(None) == 5


async def test_without_measuring_nobody_waits(autojump_clock):
    loop = Loop()
    OWNER.set(ANNA)
    for _ in range(100):
        await loop.turn()
    OWNER.set(None)


async def test_what_is_called_later_is_called_in_turn_and_charged(autojump_clock):
    async with working() as work:
        called: list[int] = []

        def call(number: int) -> None:
            called.append(number)
            work.clock.now += PASS_S

        for number in range(50):
            work.loop.later(ANNA, partial(call, number))
        assert len(called) < 3
        work.loop.later(BERT, lambda: called.append(-1))
        await settled()
    assert sorted(called) == list(range(-1, 50))
    assert called.index(-1) < 5
    assert [each for each in called if each >= 0] == list(range(50))


async def test_one_who_gives_up_waiting_keeps_nobody_waiting(autojump_clock):
    async with working() as work, trio.open_nursery() as waiting:
        for _ in range(50):
            waiting.start_soon(work._work, ANNA, 1000, PASS_S)
        while len(work.done) < 20:
            await trio.lowlevel.checkpoint()
        waiting.cancel_scope.cancel()
    assert not work.loop._shares


def test_full_collections_are_rare_while_inside_and_as_before_behind():
    before = gc.get_threshold()
    with rare_collections():
        young, middle, old = gc.get_threshold()
        assert young == YOUNG_OBJECTS > before[0]
        assert (middle, old) == (before[1], before[2] * FULL_COLLECTION_PART)
        assert gc.get_freeze_count() > 0
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)


async def test_what_is_new_is_looked_at_in_time(autojump_clock, nursery):
    class Node:
        itself: object

    with rare_collections():
        gc.disable()  # but for what it does by itself
        try:
            node = Node()
            node.itself = node
            freed = weakref.ref(node)
            del node
            nursery.start_soon(collect_young)
            await trio.sleep(COLLECT_S + 1)
            assert freed() is None
        finally:
            gc.enable()
        nursery.cancel_scope.cancel()
