from contextlib import ExitStack
from typing import cast

import pytest
import trio
import trio.testing
from hypothesis import given, strategies as st

from inferd.backend.caller import Caller
from inferd.server.connection.output_quota import (
    OutputQuota,
    PendingOutput,
    choose_evicted,
)

ANNA, BERT, CARL = (Caller(uid) for uid in (70_001, 70_002, 70_003))
EVE, FINN = (Caller(70_004, name) for name in ("eve", "finn"))
CALLERS = st.sampled_from([ANNA, BERT, CARL, EVE, FINN])


def output(caller: Caller, n_bytes: int) -> PendingOutput:
    return PendingOutput(caller, n_bytes, trio.CancelScope())


RESTS = st.lists(
    st.builds(output, CALLERS, st.integers(1, 100)),
    max_size=8,
)
NEWCOMER = st.builds(output, CALLERS, st.integers(1, 200))


def held_by(pending: list[PendingOutput], caller: Caller) -> tuple[int, int]:
    """Count the bytes of a caller's user, and the caller's own."""
    of_user = [each for each in pending if each.caller.user == caller.user]
    own = [each for each in of_user if each.caller == caller]
    return sum(each.n_bytes for each in of_user), sum(each.n_bytes for each in own)


# --- eviction ---------------------------------------------------------------------------


@given(RESTS, NEWCOMER, st.integers(1, 300))
def test_pending_outputs_are_within_the_quota_or_one_alone(
    pending, newcomer, max_bytes
):
    go = choose_evicted(pending, newcomer, max_bytes)
    stay = [*(each for each in pending if each not in go), newcomer]
    assert sum(each.n_bytes for each in stay) <= max_bytes or stay == [newcomer]


@given(RESTS, NEWCOMER, st.integers(1, 300))
def test_nothing_is_evicted_without_need(pending, newcomer, max_bytes):
    go = choose_evicted(pending, newcomer, max_bytes)
    assert len(set(map(id, go))) == len(go)
    total = sum(each.n_bytes for each in [*pending, newcomer])
    assert not go or total - sum(each.n_bytes for each in go[:-1]) > max_bytes


@given(RESTS, NEWCOMER, st.integers(1, 300))
def test_an_evicted_output_is_the_oldest_of_the_largest_users_largest_principal(
    pending, newcomer, max_bytes
):
    stay = list(pending)
    for gone in choose_evicted(pending, newcomer, max_bytes):
        held = {each.caller: held_by([*stay, newcomer], each.caller) for each in stay}
        user, own = held[gone.caller]
        assert user == max(of_user for of_user, _ in held.values())
        principals = [held[each] for each in held if each.user == gone.caller.user]
        assert (user, own) == max(principals)
        assert gone is next(each for each in stay if each.caller == gone.caller)
        stay.remove(gone)


def test_a_user_who_floods_has_its_own_outputs_evicted():
    pending = [output(BERT, 10), *(output(ANNA, 30) for _ in range(3))]
    assert choose_evicted(pending, output(ANNA, 30), 100) == [pending[1]]
    assert choose_evicted(pending, output(CARL, 30), 100) == [pending[1]]


def test_a_principal_who_floods_has_its_own_outputs_evicted_not_anothers():
    pending = [output(FINN, 30), output(EVE, 40), output(EVE, 40)]
    assert choose_evicted(pending, output(EVE, 30), 120) == [pending[1]]
    assert choose_evicted(pending, output(ANNA, 90), 190) == [pending[1]]


class Looked:
    """A pending output that counts the reads of its caller."""

    n_looks = 0

    def __init__(self, caller: Caller) -> None:
        self.n_bytes = 1
        self._caller = caller

    @property
    def caller(self) -> Caller:
        Looked.n_looks += 1
        return self._caller


@pytest.mark.parametrize("n_users", [1, 7, 500])
def test_choosing_evicted_outputs_takes_few_steps(n_users):
    pending = [Looked(Caller(number % n_users)) for number in range(1000)]
    Looked.n_looks = 0
    go = choose_evicted(cast("list[PendingOutput]", pending), output(ANNA, 500), 600)
    assert len(go) == 900
    assert len({*map(id, go)}) == 900
    assert Looked.n_looks <= 3 * len(pending)


def test_among_equal_users_the_oldest_output_is_evicted():
    pending = [output(each, 10) for each in (BERT, ANNA, ANNA, BERT)]
    assert choose_evicted(pending, output(CARL, 5), 30) == pending[:2]


# --- while they are written ---------------------------------------------------------------


async def test_an_output_counts_while_it_is_reserved():
    unread = OutputQuota(100)
    with unread.reserve(ANNA, 60), unread.reserve(BERT, 40):
        assert unread.n_bytes == 100
    assert unread.n_bytes == 0


async def test_writing_of_an_evicted_output_is_cancelled(autojump_clock, nursery):
    unread = OutputQuota(100)
    gone: list[bool] = []

    async def write():
        with unread.reserve(ANNA, 60) as scope:
            await trio.sleep_forever()
        gone.append(scope.cancelled_caught)

    nursery.start_soon(write)
    await trio.testing.wait_all_tasks_blocked()
    with unread.reserve(ANNA, 60) as scope:
        await trio.testing.wait_all_tasks_blocked()
        assert gone == [True]
        assert unread.n_bytes == 60
        assert not scope.cancel_called


async def test_a_single_output_may_be_larger_than_the_quota():
    unread = OutputQuota(100)
    with unread.reserve(ANNA, 1000) as scope:
        assert not scope.cancel_called


async def test_a_lower_quota_applies_to_later_outputs():
    unread = OutputQuota(100)
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(unread.reserve(ANNA, 40)) for _ in range(2)
        )
        unread.max_bytes = 50
        assert (first.cancel_called, second.cancel_called) == (False, False)
        stack.enter_context(unread.reserve(BERT, 1))
        assert (first.cancel_called, second.cancel_called) == (True, False)
        stack.pop_all().close()


async def test_the_bytes_are_a_gauge():
    unread = OutputQuota(100)
    name, _, read = unread.gauge()
    with unread.reserve(ANNA, 60):
        assert (name, read()) == ("unread_bytes", 60)


async def test_an_exception_inside_releases_the_output():
    unread = OutputQuota(100)
    with pytest.raises(ZeroDivisionError), unread.reserve(ANNA, 60):
        raise ZeroDivisionError
    assert unread.n_bytes == 0
