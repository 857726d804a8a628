import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from inferd.admission import Admission
from inferd.errors import DrainingError, QueueFullError


class AdmissionMachine(RuleBasedStateMachine):
    """Requests come and go in any order; a list of each kind says what should be."""

    @initialize(max_active=st.integers(1, 4), max_queued=st.integers(0, 4))
    def open(self, max_active: int, max_queued: int) -> None:
        self.max_active, self.max_queued = max_active, max_queued
        self.gate = Admission(max_active=max_active, max_queued=max_queued)
        self.active: set[int] = set()
        self.waiting: list[int] = []
        self.n_seen = 0
        self.is_open = True

    @rule()
    def arrive(self) -> None:
        self.n_seen += 1
        ticket = self.n_seen
        if not self.is_open:
            with pytest.raises(DrainingError):
                self.gate.arrive(ticket)
        elif len(self.active) < self.max_active:
            assert self.gate.arrive(ticket) is True
            self.active.add(ticket)
        elif len(self.waiting) < self.max_queued:
            assert self.gate.arrive(ticket) is False
            self.waiting.append(ticket)
        else:
            with pytest.raises(QueueFullError):
                self.gate.arrive(ticket)

    @precondition(lambda self: self.n_seen)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        """Some leave while they run, some while they wait, some again, some uninvited."""
        ticket = data.draw(st.integers(1, self.n_seen + 1))
        successor = self.gate.leave(ticket)
        if ticket in self.active and self.waiting:
            assert successor == self.waiting.pop(0)
            self.active = self.active - {ticket} | {successor}
        else:
            assert successor is None
            self.active.discard(ticket)
            self.waiting = [each for each in self.waiting if each != ticket]

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

    def teardown(self) -> None:
        for ticket in range(1, self.n_seen + 1):
            self.gate.leave(ticket)
        assert (self.gate.active, self.gate.waiting) == (0, 0)


AdmissionMachine.TestCase.settings = settings(max_examples=30, stateful_step_count=25)
TestAnyOrderOfEvents = AdmissionMachine.TestCase


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
        gate.arrive(2)
    gate.leave(1)
    assert gate.arrive(2) is True
