from collections import Counter

import pytest
from hypothesis import given, strategies as st

from inferd.server.connection.limit import ConnectionLease, ConnectionLimit, n_reserved
from tests.cases import each_case

ANNA, BERT, CARL = 70_001, 70_002, 70_003


def fill(limit: ConnectionLimit, uid: int) -> list[ConnectionLease]:
    """Acquire leases for a user until the limit is reached."""
    return list(iter(lambda: limit.acquire(uid), None))


@each_case("max_connections", [1, 2, 7, 8, 100])
def test_a_single_user_may_have_all_connections(max_connections):
    limit = ConnectionLimit(max_connections)
    assert len(fill(limit, ANNA)) == limit.n_held == max_connections


def test_a_released_lease_can_be_acquired_again():
    limit = ConnectionLimit(1)
    lease = limit.acquire(ANNA)
    assert lease is not None
    assert limit.acquire(ANNA) is None
    limit.release(lease)
    assert limit.acquire(ANNA) is not None


@pytest.mark.parametrize("max_connections", [2, 8, 100])
def test_another_user_can_connect_where_one_has_all_connections(max_connections):
    limit = ConnectionLimit(max_connections)
    fill(limit, ANNA)
    theirs = fill(limit, BERT)
    assert len(theirs) == n_reserved(max_connections)
    assert all(lease.is_reserved for lease in theirs)
    assert limit.acquire(ANNA) is None


def test_reserved_connections_are_shared_among_users_below_their_share():
    limit = ConnectionLimit(80)
    fill(limit, ANNA)
    assert limit.acquire(BERT) is not None
    assert len(fill(limit, CARL)) == 5
    assert len(fill(limit, BERT)) == 4


def test_a_user_with_an_equal_share_gets_no_reserved_connection():
    limit = ConnectionLimit(10)
    for _ in range(5):
        assert limit.acquire(BERT) is not None
    fill(limit, ANNA)
    assert limit.acquire(BERT) is None


def test_with_a_limit_of_0_nobody_can_connect():
    assert ConnectionLimit(0).acquire(ANNA) is None


def test_a_lower_limit_closes_no_connection():
    limit = ConnectionLimit(4)
    leases = fill(limit, ANNA)
    limit.max_connections = 2
    limit.release(leases.pop())
    assert (limit.n_held, limit.acquire(ANNA)) == (3, None)
    for lease in leases:
        limit.release(lease)
    assert len(fill(limit, ANNA)) == 2


@pytest.mark.parametrize(("n_held", "is_short"), [(1, False), (6, False), (7, True)])
def test_connections_are_scarce_when_fewer_than_a_quarter_are_free(n_held, is_short):
    limit = ConnectionLimit(8)
    for _ in range(n_held):
        limit.acquire(ANNA)
    assert limit.must_close_idle(ANNA) is is_short


def test_a_user_with_fewer_connections_than_others_keeps_idle_ones():
    limit = ConnectionLimit(8)
    for uid in (ANNA, BERT, BERT, CARL, CARL, CARL, CARL):
        limit.acquire(uid)
    needed = [limit.must_close_idle(uid) for uid in (ANNA, BERT, CARL)]
    assert needed == [False, False, True]


def test_the_number_of_connections_is_a_gauge():
    limit = ConnectionLimit(8)
    name, _, read = limit.gauge()
    limit.acquire(ANNA)
    assert (name, read()) == ("connections", 1)


STEPS = st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=80)


@given(max_connections=st.integers(1, 20), steps=STEPS)
def test_the_bounds_hold_for_any_sequence_of_calls(max_connections, steps):
    limit, inside = ConnectionLimit(max_connections), Counter[ConnectionLease]()
    for uid, comes in steps:
        n_ordinary = sum(n for lease, n in inside.items() if not lease.is_reserved)
        if comes:
            lease = limit.acquire(uid)
            if lease is not None:
                inside[lease] += 1
            assert lease is not None or n_ordinary == max_connections
        elif mine := [lease for lease in +inside if lease.uid == uid]:
            limit.release(mine[0])
            inside[mine[0]] -= 1
        assert (
            limit.n_held
            == inside.total()
            <= max_connections + n_reserved(max_connections)
        )
    for lease in inside.elements():
        limit.release(lease)
    assert (limit.n_held, limit._held, limit._reserved) == (0, {}, {})
