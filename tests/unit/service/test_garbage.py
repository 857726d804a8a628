import gc
import weakref
from collections.abc import Iterator

import pytest
import trio

from inferd.limits.server import (
    GC_FULL_S,
    GC_INTERVAL_S,
    GC_YOUNG_OBJECTS,
    GC_YOUNG_S,
)
from inferd.service.garbage import (
    NEVER,
    OLDEST,
    YOUNG,
    GarbageCollector,
    infrequent_gc,
)
from tests.fakes.clock import Clock

OBJECTS_PER_PASS = 200


class Node:
    itself: object


@pytest.fixture
def by_hand() -> Iterator[None]:
    """Have Python collect nothing by itself, and all that a test leaves."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    gc.collect()


@pytest.fixture
def collections(by_hand) -> Iterator[list[int]]:
    """List the generations that are collected."""
    found: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            found.append(info["generation"])

    gc.callbacks.append(note)
    yield found
    gc.callbacks.remove(note)


def young_objects() -> int:
    return sum(len(gc.get_objects(generation)) for generation in range(YOUNG + 1))


def cycle() -> "weakref.ref[Node]":
    """Make an object that only a collection frees."""
    node = Node()
    node.itself = node
    return weakref.ref(node)


@pytest.mark.parametrize("was_frozen", [False, True])
def test_python_collects_rarely_while_inside_and_as_before_afterwards(was_frozen):
    before = gc.get_threshold()
    gc.unfreeze()
    if was_frozen:
        gc.freeze()
    n_frozen = gc.get_freeze_count()
    with infrequent_gc():
        assert gc.get_threshold() == (GC_YOUNG_OBJECTS, before[1], NEVER)
        assert gc.get_freeze_count() > n_frozen
    assert gc.get_threshold() == before
    assert (gc.get_freeze_count() > 0) == was_frozen
    gc.freeze()


async def test_no_collection_visits_more_than_a_few_passes_make(by_hand):
    clock, most = Clock(), 0
    kept: list[list[int]] = []
    n_before = young_objects()
    with GarbageCollector(clock).collecting():
        for _ in range(200):  # each of them as many objects, at a fifth of the time
            kept += [[] for _ in range(OBJECTS_PER_PASS)]
            most = max(most, young_objects() - n_before)
            clock.now += GC_YOUNG_S / 5
            await trio.lowlevel.checkpoint()
    assert most < 10 * OBJECTS_PER_PASS
    assert young_objects() - n_before < 10 * OBJECTS_PER_PASS < len(kept)


async def test_an_event_loop_that_has_done_little_collects_nothing(collections):
    clock = Clock()
    with GarbageCollector(clock).collecting():
        for _ in range(100):
            clock.now += GC_YOUNG_S / 200
            await trio.lowlevel.checkpoint()
    assert not collections


async def test_the_time_of_a_collection_is_not_the_loops(by_hand):
    clock, times = Clock(), []

    def take_long(phase: str, info: dict[str, int]) -> None:
        times.append(info["generation"])
        clock.now += GC_YOUNG_S * 2

    gc.callbacks.append(take_long)
    try:
        with GarbageCollector(clock).collecting():
            clock.now += GC_YOUNG_S
            for _ in range(100):
                await trio.lowlevel.checkpoint()
    finally:
        gc.callbacks.remove(take_long)
    assert times == [YOUNG, YOUNG]  # the start and the end of one


async def test_all_is_collected_after_a_long_time_alone(collections):
    clock = Clock()
    with GarbageCollector(clock).collecting():
        for share in (0.4, 0.8, 1.2, 1.6, 2.4):
            clock.now = share * GC_FULL_S
            await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()
    assert collections == [YOUNG, YOUNG, OLDEST, YOUNG, OLDEST]


async def test_young_garbage_of_an_idle_loop_is_collected(
    by_hand, autojump_clock, nursery
):
    freed = cycle()
    nursery.start_soon(GarbageCollector().run)
    await trio.sleep(GC_INTERVAL_S + 1)
    assert freed() is None
    nursery.cancel_scope.cancel()
