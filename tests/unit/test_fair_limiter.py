import pytest
import trio
import trio.testing
from hypothesis import given, strategies as st

from inferd.fair_limiter import FairLimiter

ANNA, BERT, CARL = 70_001, 70_002, 70_003


async def settled():
    await trio.testing.wait_all_tasks_blocked()


class Readers:
    """Tasks that wait for a permit, and those that hold one, in order of the grants."""

    def __init__(self, nursery: trio.Nursery, limit: int) -> None:
        self.limiter = FairLimiter(limit)
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
        async with self.limiter.acquire(uid):
            end = trio.Event()
            self.reading.append(uid)
            self._ends.append(end)
            await end.wait()


async def test_no_more_than_the_limit_have_a_permit(nursery, autojump_clock):
    readers = Readers(nursery, 3)
    await readers.come(ANNA, BERT, CARL, ANNA)
    assert readers.reading == [ANNA, BERT, CARL]
    await readers.end(1)
    assert readers.reading == [ANNA, CARL, ANNA]
    nursery.cancel_scope.cancel()


async def test_a_single_user_leaves_a_permit_to_others(nursery, autojump_clock):
    readers = Readers(nursery, 3)
    await readers.come(ANNA, ANNA, ANNA, BERT)
    assert readers.reading == [ANNA, ANNA, BERT]
    nursery.cancel_scope.cancel()


async def test_a_single_permit_is_for_everybody(nursery, autojump_clock):
    readers = Readers(nursery, 1)
    await readers.come(ANNA, ANNA)
    assert readers.reading == [ANNA]
    await readers.end(0)
    assert readers.reading == [ANNA]
    nursery.cancel_scope.cancel()


async def test_the_user_with_the_fewest_permits_is_next(nursery, autojump_clock):
    readers = Readers(nursery, 3)
    await readers.come(ANNA, ANNA, CARL, ANNA, BERT)
    await readers.end(2)
    assert readers.reading == [ANNA, ANNA, BERT]
    nursery.cancel_scope.cancel()


async def test_a_cancelled_waiter_takes_no_permit(nursery, autojump_clock):
    readers = Readers(nursery, 2)
    await readers.come(ANNA, BERT)
    with trio.move_on_after(1):
        async with readers.limiter.acquire(CARL):
            raise AssertionError
    await readers.end(0)
    await readers.come(ANNA)
    assert readers.reading == [BERT, ANNA]
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("limit", [1, 4])
async def test_an_exception_inside_returns_the_permit(limit, autojump_clock):
    limiter = FairLimiter(limit)
    with pytest.raises(ZeroDivisionError):
        async with limiter.acquire(ANNA):
            raise ZeroDivisionError
    assert (limiter.n_active, limiter._active, limiter._waiting) == (0, {}, {})


async def test_a_higher_limit_applies_to_the_next_call(nursery, autojump_clock):
    readers = Readers(nursery, 1)
    await readers.come(ANNA, BERT)
    readers.limiter.limit = 3
    await readers.come(CARL)
    assert sorted(readers.reading) == [ANNA, BERT, CARL]  # two of them at once
    nursery.cancel_scope.cancel()


async def test_two_users_who_flood_do_not_starve_a_third(nursery, autojump_clock):
    readers = Readers(nursery, 2)
    await readers.come(*[ANNA, BERT] * 5, CARL)
    for following in (ANNA, BERT, CARL, ANNA):  # each in turn
        await readers.end(0)
        assert readers.reading[-1] == following
    nursery.cancel_scope.cancel()


@given(
    limit=st.integers(1, 4),
    uids=st.lists(st.integers(0, 3), max_size=12),
    seconds=st.lists(st.integers(0, 3), min_size=12, max_size=12),
)
def test_everybody_gets_a_permit_and_never_too_many_at_once(limit, uids, seconds):
    limiter, done = FairLimiter(limit), []

    async def read(uid: int, for_s: int) -> None:
        async with limiter.acquire(uid):
            assert limiter.n_active <= limit
            assert limiter._active[uid] <= max(1, limit - 1)
            await trio.sleep(for_s)
        done.append(uid)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for uid, for_s in zip(uids, seconds, strict=False):
                nursery.start_soon(read, uid, for_s)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert sorted(done) == sorted(uids)
    assert (limiter._active, limiter._waiting) == ({}, {})
