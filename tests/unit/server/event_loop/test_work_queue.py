from collections import Counter, deque

from hypothesis import given, strategies as st

from inferd.limits.server import (
    FAIR_SHARE_CREDIT_S,
    MAX_FAIR_SHARE_USERS,
    MIN_TASK_CHARGE_S,
)
from inferd.server.event_loop.work_queue import WorkQueue

ANNA, BERT = 1, 2
LONGEST_S = 0.05

users = st.integers(1, 4)
costs = st.floats(0, LONGEST_S)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), users),
        st.tuples(st.just("put_back"), users),
        st.tuples(st.just("remove"), users),
        st.tuples(st.just("take"), costs),
    ),
    max_size=200,
)


@given(steps)
def test_nothing_is_lost_and_each_users_pieces_keep_their_order(steps):
    shares = WorkQueue[int]()
    waiting: dict[int, deque[int]] = {user: deque() for user in range(1, 5)}
    put_back: dict[int, deque[int]] = {user: deque() for user in range(1, 5)}
    for number, (kind, value) in enumerate(steps):
        if kind == "put":
            shares.put(value, number)
            waiting[value].append(number)
        elif kind == "put_back":
            shares.put_back(value, number)
            put_back[value].append(number)
        elif kind == "remove" and (line := waiting[value] or put_back[value]):
            shares.remove(value, line.pop())
        elif kind == "take":
            taken = shares.take()
            is_empty = not any(waiting.values()) and not any(put_back.values())
            assert (taken is None) == is_empty
            if taken is not None:
                user, piece = taken
                assert (put_back[user] or waiting[user]).popleft() == piece
                shares.charge(user, value)
    assert len(shares) == sum(bool(waiting[user] or put_back[user]) for user in waiting)


@given(
    st.lists(st.tuples(users, costs), max_size=30),
    st.lists(costs, min_size=1, max_size=200),
)
def test_of_two_users_who_always_wait_neither_gets_much_more(before, costs):
    shares = WorkQueue[int]()
    for user, cost in before:
        if shares.is_next(user):
            shares.serve(user)
            shares.charge(user, cost)
    for user in (ANNA, BERT):
        shares.put(user, 0)
    got: Counter[int] = Counter()
    for number, cost in enumerate(costs, start=1):
        taken = shares.take()
        assert taken is not None
        user, _ = taken
        got[user] += cost + MIN_TASK_CHARGE_S
        shares.charge(user, cost)
        shares.put(user, number)
        most = FAIR_SHARE_CREDIT_S + 2 * (LONGEST_S + MIN_TASK_CHARGE_S)
        assert abs(got[ANNA] - got[BERT]) <= most + 1e-9


@given(st.floats(0, 1000), st.integers(1, 100))
def test_a_new_user_is_served_before_one_who_floods(alone_s, n_pieces):
    shares = WorkQueue[int]()
    assert shares.is_next(ANNA)
    shares.serve(ANNA)
    shares.charge(ANNA, alone_s)
    for piece in range(n_pieces):
        shares.put(ANNA, piece)
    shares.take()
    assert shares.is_next(BERT)
    shares.put(BERT, 0)
    assert shares.take() == (BERT, 0)


def test_time_when_a_user_was_alone_is_not_held_against_it():
    shares = WorkQueue[int]()
    for _ in range(100):
        shares.serve(ANNA)
        shares.charge(ANNA, 1.0)
    shares.put(ANNA, 0)
    shares.put(BERT, 0)
    shares.take()
    shares.charge(BERT, 2 * FAIR_SHARE_CREDIT_S + 1.0)
    shares.put(BERT, 1)
    assert shares.take() == (ANNA, 0)


def test_a_user_does_not_overtake_its_own_work():
    shares = WorkQueue[int]()
    shares.put(ANNA, 0)
    assert not shares.is_next(ANNA)


def test_old_users_are_forgotten():
    shares = WorkQueue[int]()
    for user in range(3 * MAX_FAIR_SHARE_USERS):
        shares.charge(user, 1e-6)
    assert len(shares._used_s) <= MAX_FAIR_SHARE_USERS + 1


def test_users_who_come_and_go_take_no_memory():
    shares = WorkQueue[int]()
    shares.put(ANNA, 0)
    for number in range(1000):
        shares.put(BERT, number)
        shares.remove(BERT, number)
    assert len(shares._heap) <= 2
