from collections import Counter

import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from inferd.admission import Admission
from inferd.errors import DrainingError, QueueFullError

UIDS = st.integers(0, 2)
PRIORITIES = st.integers(-2, 2)


class AdmissionMachine(RuleBasedStateMachine):
    """Requests come and go in any order; a list of each kind says what should be."""

    @initialize(
        max_active=st.integers(1, 3), max_queued=st.integers(0, 6), ranked=st.booleans()
    )
    def open(self, max_active: int, max_queued: int, ranked: bool) -> None:  # noqa: FBT001
        self.max_active, self.max_queued = max_active, max_queued
        self.ranked = ranked
        self.gate = Admission(max_active=max_active, max_queued=max_queued)
        self.active: set[int] = set()
        self.waiting: dict[int, tuple[int, int]] = {}
        self.turns: list[int] = []
        self.n_seen = 0
        self.is_open = True

    @rule(uid=UIDS, priority=PRIORITIES)
    def arrive(self, uid: int, priority: int) -> None:
        priority *= self.ranked
        self.n_seen += 1
        ticket = self.n_seen
        if not self.is_open:
            with pytest.raises(DrainingError):
                self.gate.arrive(ticket, uid=uid, priority=priority)
        elif len(self.active) < self.max_active:
            assert self.gate.arrive(ticket, uid=uid, priority=priority) is True
            self.active.add(ticket)
        elif len(self.waiting) < self.max_queued:
            assert self.gate.arrive(ticket, uid=uid, priority=priority) is False
            self.waiting[ticket] = (uid, priority)
            self.turns.append(uid)
        else:
            with pytest.raises(QueueFullError):
                self.gate.arrive(ticket, uid=uid, priority=priority)

    @precondition(lambda self: self.n_seen)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        """Some leave while they run, some while they wait, some again, some uninvited."""
        ticket = data.draw(st.integers(1, self.n_seen + 1))
        if ticket in self.waiting:
            self.give_up(ticket)
        elif ticket in self.active and self.waiting:
            self.make_way(ticket)
        else:
            assert self.gate.leave(ticket) is None
            self.active.discard(ticket)

    def make_way(self, ticket: int) -> None:
        uid = self.turns.pop(0)
        mine = [each for each in self.waiting if self.waiting[each][0] == uid]
        best = max(mine, key=lambda each: (self.waiting[each][1], -each))
        assert self.gate.leave(ticket) == best
        del self.waiting[best]
        self.active = self.active - {ticket} | {best}

    def give_up(self, ticket: int) -> None:
        """One turn of the same user is gone; without priorities, one's own."""
        uid, _ = self.waiting.pop(ticket)
        assert self.gate.leave(ticket) is None
        left = [self.waiting[each][0] for each in self.gate.order()]
        places = [place for place, each in enumerate(self.turns) if each == uid]
        assert left in [self.turns[:at] + self.turns[at + 1 :] for at in places]
        self.turns = left

    @rule()
    def close(self) -> None:
        self.gate.close()
        self.is_open = False

    @invariant()
    def the_gate_counts_right(self) -> None:
        assert self.gate.active == len(self.active) <= self.max_active
        assert self.gate.waiting == len(self.waiting) <= self.max_queued

    @invariant()
    def nobody_waits_while_a_permit_is_free(self) -> None:
        assert not self.gate.waiting or self.gate.active == self.max_active

    @invariant()
    def turns_stay_as_they_came_and_users_rank_their_own(self) -> None:
        order = list(self.gate.order())
        assert sorted(order) == sorted(self.waiting)
        assert [self.waiting[each][0] for each in order] == self.turns
        for uid in set(self.turns):
            mine = [each for each in order if self.waiting[each][0] == uid]
            assert mine == sorted(mine, key=lambda each: (-self.waiting[each][1], each))

    @invariant()
    def without_priorities_the_first_to_come_is_the_first_to_run(self) -> None:
        assert self.ranked or list(self.gate.order()) == list(self.waiting)

    def teardown(self) -> None:
        """What the order foretells happens when nobody else comes."""
        order = list(self.gate.order())
        running = list(self.active)
        started: list[int] = []
        while running:
            successor = self.gate.leave(running.pop())
            if successor is not None:
                started.append(successor)
                running.append(successor)
        assert started == order
        assert (self.gate.active, self.gate.waiting) == (0, 0)


AdmissionMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=20)
TestAnyOrderOfEvents = AdmissionMachine.TestCase


@given(max_active=st.integers(1, 9), bound=st.integers(1, 9), n=st.integers(0, 20))
def test_a_bound_only_ever_lowers_the_permits(max_active, bound, n):
    gate = Admission(max_active=max_active, max_queued=20)
    gate.bound(bound)
    for ticket in range(n):
        gate.arrive(ticket)
    assert gate.active == min(max_active, bound, n)


def test_those_who_wait_start_in_the_order_they_came():
    gate = Admission(max_active=1, max_queued=3)
    assert [gate.arrive(ticket) for ticket in (9, 5, 7, 1)] == [
        True,
        False,
        False,
        False,
    ]
    assert [gate.leave(ticket) for ticket in (9, 5, 7, 1)] == [5, 7, 1, None]


def test_who_waits_and_leaves_is_passed_over():
    gate = Admission(max_active=1, max_queued=2)
    for ticket in (1, 2, 3):
        gate.arrive(ticket)
    assert gate.leave(2) is None
    assert gate.leave(1) == 3


def test_leaving_twice_frees_one_permit():
    gate = Admission(max_active=2, max_queued=2)
    for ticket in (1, 2, 3, 4):
        gate.arrive(ticket)
    assert (gate.leave(1), gate.leave(1)) == (3, None)
    assert (gate.active, gate.waiting) == (2, 1)


def test_a_closed_gate_lets_those_inside_go_on():
    gate = Admission(max_active=1, max_queued=1)
    gate.arrive(1)
    gate.arrive(2)
    gate.close()
    with pytest.raises(DrainingError):
        gate.arrive(3)
    assert gate.leave(1) == 2
    assert gate.leave(2) is None


def test_a_full_gate_says_so_and_keeps_its_place():
    gate = Admission(max_active=1, max_queued=0)
    gate.arrive(1)
    with pytest.raises(QueueFullError, match=r"^queue full$"):
        gate.arrive(2, priority=10)
    gate.leave(1)
    assert gate.arrive(2) is True


# --- priorities -------------------------------------------------------------------------


def gate_with(*waiting: tuple[int, int]) -> Admission:
    """A gate where 0 runs and 1, 2, … wait: each a user and a priority."""
    gate = Admission(max_active=1, max_queued=len(waiting))
    gate.arrive(0)
    for ticket, (uid, priority) in enumerate(waiting, start=1):
        gate.arrive(ticket, uid=uid, priority=priority)
    return gate


def starts_of(gate: Admission) -> list[int]:
    """Let all run, one after the other; give who started."""
    started = [0]
    while (ticket := gate.leave(started[-1])) is not None:
        started.append(ticket)
    return started[1:]


@pytest.mark.parametrize(
    ("waiting", "order"),
    [
        ([(1, 0), (1, 5), (1, 0), (1, 5)], [2, 4, 1, 3]),
        ([(1, 0), (2, 0), (1, 10)], [3, 2, 1]),
        ([(1, -10), (2, -5), (1, 10), (2, 0), (3, 0)], [3, 4, 1, 2, 5]),
        ([(1, 0), (2, 10)], [1, 2]),
        ([(1, 0), (1, 0), (2, 0), (1, 9)], [4, 1, 3, 2]),
    ],
)
def test_a_priority_orders_a_users_own_requests(waiting, order):
    assert list(gate_with(*waiting).order()) == order
    assert starts_of(gate_with(*waiting)) == order


def test_who_was_passed_by_an_own_request_has_its_turn():
    gate = gate_with((1, 0), (2, 0), (1, 10))
    assert gate.leave(0) == 3
    assert list(gate.order()) == [2, 1]
    gate.arrive(4, uid=1, priority=10)
    assert list(gate.order()) == [2, 4, 1]


def test_who_gives_up_takes_no_turn_of_others_along():
    gate = gate_with((1, 0), (2, 0), (1, 10), (2, 0))
    gate.leave(1)
    assert starts_of(gate) == [2, 3, 4]


EVENTS = st.lists(st.tuples(UIDS, PRIORITIES) | st.just(None), max_size=20)


@settings(max_examples=40)
@given(EVENTS, st.integers(1, 3))
def test_no_priority_changes_when_another_user_has_a_turn(events, max_active):
    def starts(*, ranked: bool) -> list[int | None]:
        gate = Admission(max_active=max_active, max_queued=20)
        uids: list[int | None] = []
        running: list[int] = []
        for ticket, event in enumerate(events):
            if event is None:
                started = gate.leave(running.pop(0)) if running else None
            else:
                uid, priority = event
                has_come = gate.arrive(ticket, uid=uid, priority=priority * ranked)
                started = ticket if has_come else None
            uids.append(None if started is None else events[started][0])
            running += [] if started is None else [started]
        return uids

    assert starts(ranked=True) == starts(ranked=False)


@settings(max_examples=40)
@given(st.lists(st.tuples(UIDS, PRIORITIES), max_size=12))
def test_positions_are_a_permutation_that_comes_true(waiting):
    gate = gate_with(*waiting)
    order = list(gate.order())
    assert Counter(order) == Counter(range(1, len(waiting) + 1))
    assert starts_of(gate) == order
