from contextlib import ExitStack
from typing import cast

import pytest
import trio
import trio.testing
from hypothesis import given, strategies as st

from inferd.server.unread import Rest, Unread, surplus

ANNA, BERT, CARL = 70_001, 70_002, 70_003


def rest(uid: int, n_bytes: int) -> Rest:
    return Rest(uid, n_bytes, trio.CancelScope())


RESTS = st.lists(
    st.builds(rest, st.sampled_from([ANNA, BERT, CARL]), st.integers(1, 100)),
    max_size=8,
)
NEWCOMER = st.builds(rest, st.sampled_from([ANNA, BERT, CARL]), st.integers(1, 200))


def of(rests: list[Rest], uid: int) -> int:
    return sum(each.n_bytes for each in rests if each.uid == uid)


# --- who has to go ----------------------------------------------------------------------


@given(RESTS, NEWCOMER, st.integers(1, 300))
def test_those_who_stay_are_within_the_bound_or_one_alone(rests, newcomer, max_bytes):
    go = surplus(rests, newcomer, max_bytes)
    stay = [*(each for each in rests if each not in go), newcomer]
    assert sum(each.n_bytes for each in stay) <= max_bytes or stay == [newcomer]


@given(RESTS, NEWCOMER, st.integers(1, 300))
def test_nobody_goes_without_need(rests, newcomer, max_bytes):
    go = surplus(rests, newcomer, max_bytes)
    assert len(set(map(id, go))) == len(go)
    total = sum(each.n_bytes for each in [*rests, newcomer])
    assert not go or total - sum(each.n_bytes for each in go[:-1]) > max_bytes


@given(RESTS, NEWCOMER, st.integers(1, 300))
def test_whoever_goes_is_the_oldest_of_one_who_has_most(rests, newcomer, max_bytes):
    stay = list(rests)
    for gone in surplus(rests, newcomer, max_bytes):
        all_users = {each.uid for each in stay}
        held = {uid: of([*stay, newcomer], uid) for uid in all_users}
        assert held[gone.uid] == max(held.values())
        assert gone is next(each for each in stay if each.uid == gone.uid)
        stay.remove(gone)


def test_one_who_floods_loses_its_own():
    rests = [rest(BERT, 10), *(rest(ANNA, 30) for _ in range(3))]
    assert surplus(rests, rest(ANNA, 30), 100) == [rests[1]]
    assert surplus(rests, rest(CARL, 30), 100) == [rests[1]]


class Looked:
    """What is left of an answer, which counts how often anybody looks whose it is."""

    n_looks = 0

    def __init__(self, uid: int) -> None:
        self.n_bytes = 1
        self._uid = uid

    @property
    def uid(self) -> int:
        Looked.n_looks += 1
        return self._uid


@pytest.mark.parametrize("n_users", [1, 7, 500])
def test_each_who_goes_is_looked_at_a_few_times(n_users):
    rests = [Looked(number % n_users) for number in range(1000)]
    Looked.n_looks = 0
    go = surplus(cast("list[Rest]", rests), rest(-1, 500), 600)
    assert len(go) == 900
    assert len({*map(id, go)}) == 900
    assert Looked.n_looks <= 3 * len(rests)


def test_among_users_with_as_much_the_oldest_goes():
    rests = [rest(uid, 10) for uid in (BERT, ANNA, ANNA, BERT)]
    assert surplus(rests, rest(CARL, 5), 30) == rests[:2]


# --- while they are written ---------------------------------------------------------------


async def test_what_is_inside_counts_and_no_longer():
    unread = Unread(100)
    with unread.keeping(ANNA, 60), unread.keeping(BERT, 40):
        assert unread.n_bytes == 100
    assert unread.n_bytes == 0


async def test_the_writing_of_one_who_has_to_go_is_cut_short(autojump_clock, nursery):
    unread = Unread(100)
    gone: list[bool] = []

    async def write():
        with unread.keeping(ANNA, 60) as scope:
            await trio.sleep_forever()
        gone.append(scope.cancelled_caught)

    nursery.start_soon(write)
    await trio.testing.wait_all_tasks_blocked()
    with unread.keeping(ANNA, 60) as scope:
        await trio.testing.wait_all_tasks_blocked()
        assert gone == [True]
        assert unread.n_bytes == 60
        assert not scope.cancel_called


async def test_one_alone_may_be_larger_than_the_bound():
    unread = Unread(100)
    with unread.keeping(ANNA, 1000) as scope:
        assert not scope.cancel_called


async def test_a_lower_bound_is_for_those_who_come_later():
    unread = Unread(100)
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(unread.keeping(ANNA, 40)) for _ in range(2)
        )
        unread.max_bytes = 50
        assert (first.cancel_called, second.cancel_called) == (False, False)
        stack.enter_context(unread.keeping(BERT, 1))
        assert (first.cancel_called, second.cancel_called) == (True, False)
        stack.pop_all().close()


async def test_the_bytes_are_a_figure():
    unread = Unread(100)
    name, _, read = unread.figure()
    with unread.keeping(ANNA, 60):
        assert (name, read()) == ("unread_bytes", 60)


async def test_a_failure_inside_leaves_nothing():
    unread = Unread(100)
    with pytest.raises(ZeroDivisionError), unread.keeping(ANNA, 60):
        raise ZeroDivisionError
    assert unread.n_bytes == 0
