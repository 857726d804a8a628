import math

import pytest
from hypothesis import given, settings, strategies as st

from inferd.admission.fair_queue import QueueEntry
from inferd.admission.preemption import (
    AdmittedRequest,
    Preemption,
    RequestTraits,
    next_preemption,
)
from inferd.admission.shares import Shares
from inferd.backend.caller import Caller
from tests.cases import each_case
from tests.unit.admission.schedules import QUANTUM_S, Schedule, Visit

EPSILON_S = 1e-6

MOMENTS = st.integers(0, 80).map(lambda n: n / 4)
VISITS = st.builds(
    Visit, MOMENTS, st.integers(0, 6), st.sampled_from([0.1, 0.5, 1.0, 5.0, 40.0])
)
SCHEDULES = st.builds(
    lambda visits, max_active, pause_s: Schedule(
        visits, max_active=max_active, pause_s=pause_s
    ),
    st.lists(VISITS, min_size=1, max_size=14),
    st.integers(1, 4),
    st.lists(st.sampled_from([0.0, 0.05, 0.5, 2.0]), min_size=1, max_size=5),
)


@pytest.mark.slow
@settings(max_examples=300)
@given(SCHEDULES)
def test_who_comes_without_a_permit_has_one_within_the_bound(schedule):
    schedule.run()
    for ticket, by in schedule.bounds.items():
        assert schedule.visits[ticket].began[0] <= by + EPSILON_S


@pytest.mark.slow
@settings(max_examples=200)
@given(SCHEDULES)
def test_all_end_and_each_permit_is_kept_for_a_quantum(schedule):
    schedule.run()
    for visit in schedule.visits:
        assert not math.isnan(visit.ended)
        for began, lost in zip(visit.began, visit.lost, strict=False):
            assert lost - began >= QUANTUM_S - EPSILON_S
        assert len(visit.began) <= 1 + len(visit.lost)
    assert schedule.gate.active == schedule.gate.n_paused == 0


@settings(max_examples=50)
@given(st.lists(st.tuples(MOMENTS, st.floats(0.1, 40)), max_size=12), st.integers(1, 4))
def test_alone_a_user_is_never_paused(moments, max_active):
    visits = [Visit(at, 1, needs_s) for at, needs_s in moments]
    schedule = Schedule(visits, max_active=max_active, pause_s=[0.0])
    schedule.run()
    assert schedule.gate.n_pauses == 0
    assert not any(visit.lost for visit in visits)


@each_case(
    ("max_active", "n_users", "n_pauses"),
    [
        (4, 2, 2),  # each has its share from then on
        (2, 2, 1),
        (1, 2, 50),  # one after the other, a quantum each
        (4, 5, 52),  # four at first, then one in each quantum
    ],
)
def test_permits_change_hands_no_oftener_than_shares_ask_for(
    max_active, n_users, n_pauses
):
    visits = [Visit(0.0, 0, 100.0) for _ in range(max_active)]
    visits += [
        Visit(0.0, uid, 100.0) for uid in range(1, n_users) for _ in range(max_active)
    ]
    schedule = Schedule(visits, max_active=max_active, pause_s=[0.0])
    schedule.run()
    lost = [at for visit in visits for at in visit.lost if at < 100.0]
    assert len(lost) <= n_pauses


def test_the_users_newest_request_pays():
    visits = [Visit(n / 10, 0, 30.0) for n in range(4)] + [Visit(10.0, 1, 5.0)]
    Schedule(visits, max_active=4, pause_s=[0.0]).run()
    assert [visit.lost for visit in visits] == [[], [], [], [10.0], []]
    assert visits[3].began == [0.3, 15.0]


def test_one_who_comes_waits_for_the_end_of_a_quantum_and_no_longer():
    visits = [Visit(0.0, 0, 30.0), Visit(0.5, 1, 5.0)]
    Schedule(visits, max_active=1, pause_s=[0.25]).run()
    assert visits[1].began[0] == QUANTUM_S + 0.25


def test_where_nobody_waits_nothing_is_due():
    assert (
        next_preemption({}, [], Shares(), max_active=1, quantum_s=1.0, now=0.0)
        == Preemption()
    )


def request(ticket: int, uid: int, started_at: float | None = None) -> AdmittedRequest:
    claim, place = RequestTraits(Caller(uid)), QueueEntry(0, ticket, ticket)
    return AdmittedRequest(claim, place, started_at=started_at)


def test_who_has_most_pays_first_however_long_others_have_run():
    running = {1: request(1, 1, 0.0), 2: request(2, 2, 5.0), 3: request(3, 2, 6.0)}
    lines = [[request(4, 3)], [request(5, 4)]]
    shares = Shares(map(Caller, range(1, 5)))
    found = next_preemption(
        running, lines, shares, max_active=3, quantum_s=1.0, now=9.0
    )
    assert found.ticket == 3
