import pytest
import trio
import trio.testing
from hypothesis import given, strategies as st

from inferd.server.large_lines import LargeLines

ANNA, BERT, CARL = 70_001, 70_002, 70_003


async def settled():
    await trio.testing.wait_all_tasks_blocked()


class Readers:
    """Tasks that want a turn, and those that have one, in the order they got it."""

    def __init__(self, nursery: trio.Nursery, n_turns: int) -> None:
        self.lines = LargeLines(n_turns)
        self.reading: list[int] = []
        self._nursery = nursery
        self._ends: list[trio.Event] = []

    async def come(self, *uids: int) -> None:
        for uid in uids:
            self._nursery.start_soon(self._read, uid)
            await settled()

    async def end(self, index: int) -> None:
        self.reading.pop(index)
        self._ends.pop(index).set()
        await settled()

    async def _read(self, uid: int) -> None:
        async with self.lines.turn(uid):
            end = trio.Event()
            self.reading.append(uid)
            self._ends.append(end)
            await end.wait()


async def test_so_many_are_read_at_once(nursery, autojump_clock):
    readers = Readers(nursery, 3)
    await readers.come(ANNA, BERT, CARL, ANNA)
    assert readers.reading == [ANNA, BERT, CARL]
    await readers.end(1)
    assert readers.reading == [ANNA, CARL, ANNA]
    nursery.cancel_scope.cancel()


async def test_a_single_user_leaves_a_turn_to_others(nursery, autojump_clock):
    readers = Readers(nursery, 3)
    await readers.come(ANNA, ANNA, ANNA, BERT)
    assert readers.reading == [ANNA, ANNA, BERT]
    nursery.cancel_scope.cancel()


async def test_one_turn_is_for_everybody(nursery, autojump_clock):
    readers = Readers(nursery, 1)
    await readers.come(ANNA, ANNA)
    assert readers.reading == [ANNA]
    await readers.end(0)
    assert readers.reading == [ANNA]
    nursery.cancel_scope.cancel()


async def test_who_has_the_fewest_turns_is_next(nursery, autojump_clock):
    readers = Readers(nursery, 3)
    await readers.come(ANNA, ANNA, CARL, ANNA, BERT)
    await readers.end(2)
    assert readers.reading == [ANNA, ANNA, BERT]
    nursery.cancel_scope.cancel()


async def test_who_gives_up_waiting_takes_no_turn(nursery, autojump_clock):
    readers = Readers(nursery, 2)
    await readers.come(ANNA, BERT)
    with trio.move_on_after(1):
        async with readers.lines.turn(CARL):
            raise AssertionError
    await readers.end(0)
    await readers.come(ANNA)
    assert readers.reading == [BERT, ANNA]
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("n_turns", [1, 4])
async def test_whose_reading_fails_gives_the_turn_back(n_turns, autojump_clock):
    lines = LargeLines(n_turns)
    with pytest.raises(ZeroDivisionError):
        async with lines.turn(ANNA):
            raise ZeroDivisionError
    assert (lines.n_reading, lines._reading, lines._waiting) == (0, {}, {})


async def test_more_turns_are_had_when_somebody_comes(nursery, autojump_clock):
    readers = Readers(nursery, 1)
    await readers.come(ANNA, BERT)
    readers.lines.n_turns = 3
    await readers.come(CARL)
    assert sorted(readers.reading) == [ANNA, BERT, CARL]  # two of them at once
    nursery.cancel_scope.cancel()


async def test_two_who_flood_keep_no_third_one_waiting(nursery, autojump_clock):
    readers = Readers(nursery, 2)
    await readers.come(*[ANNA, BERT] * 5, CARL)
    for following in (ANNA, BERT, CARL, ANNA):  # each in turn
        await readers.end(0)
        assert readers.reading[-1] == following
    nursery.cancel_scope.cancel()


@given(
    n_turns=st.integers(1, 4),
    uids=st.lists(st.integers(0, 3), max_size=12),
    seconds=st.lists(st.integers(0, 3), min_size=12, max_size=12),
)
def test_everybody_has_a_turn_and_never_too_many_at_once(n_turns, uids, seconds):
    lines, done = LargeLines(n_turns), []

    async def read(uid: int, for_s: int) -> None:
        async with lines.turn(uid):
            assert lines.n_reading <= n_turns
            assert lines._reading[uid] <= max(1, n_turns - 1)
            await trio.sleep(for_s)
        done.append(uid)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for uid, for_s in zip(uids, seconds, strict=False):
                nursery.start_soon(read, uid, for_s)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert sorted(done) == sorted(uids)
    assert (lines._reading, lines._waiting) == ({}, {})
