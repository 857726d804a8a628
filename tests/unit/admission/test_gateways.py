"""A user with principals beside users without, in the queue, its limits and its permits."""

import itertools
import math
from collections import Counter

import pytest
from hypothesis import example, given, settings, strategies as st

from inferd.admission.control import Admission, RequestTraits
from inferd.admission.fair_queue import FairQueue, QueueEntry
from inferd.admission.quota import Charge, Quota
from inferd.admission.shares import First, Shares
from inferd.backend.caller import Caller
from inferd.errors import QueueFullError
from tests.cases import each_case
from tests.unit.admission.schedules import QUANTUM_S, Schedule, Visit

GATEWAY, USER = 5, Caller(1)


def of(name: object) -> Caller:
    return Caller(GATEWAY, str(name))


def begin(queue: FairQueue, *callers: Caller) -> None:
    for caller in callers:
        queue.begin(caller)


def put(queue: FairQueue, caller: Caller, ticket: int) -> None:
    queue.put(caller, QueueEntry(0, ticket, ticket))


# --- shares -------------------------------------------------------------------------------

CALLERS = st.lists(
    st.builds(Caller, st.integers(0, 3), st.sampled_from("abcdef")), min_size=1
)


@settings(max_examples=50)
@given(CALLERS, st.integers(1, 5), st.integers(0, 1000))
def test_shares_add_up_and_no_user_has_more_than_its_weight(callers, weight, limit):
    shares = Shares(callers, weight)
    users = {caller.user for caller in callers}
    for user in users:
        names = {caller.principal for caller in callers if caller.user == user}
        assert shares.weight(user) == min(len(names), weight)
        own = sum(shares.of(limit, Caller(user, name)) for name in names)
        assert own <= shares.of_user(limit, user)
        assert shares.of_user(limit, user) * len(users) <= limit * weight
    assert sum(shares.of_user(limit, user) for user in users) <= limit
    for caller in callers:
        share = shares.of(limit, caller)
        assert shares.excess(share, limit, caller) <= 0
        assert shares.excess(share + 1, limit, caller) > 0


# --- the queue ----------------------------------------------------------------------------


@settings(max_examples=50)
@given(
    n_names=st.integers(1, 40),
    weight=st.integers(1, 16),
    come_and_go=st.booleans(),
    n_each=st.integers(1, 3),
)
@example(n_names=1000, weight=16, come_and_go=True, n_each=1)
@example(n_names=1000, weight=16, come_and_go=False, n_each=50)
def test_between_two_turns_of_a_user_a_gateway_has_as_many_as_its_weight(
    n_names, weight, come_and_go, n_each
):
    queue, tickets, names = FairQueue(weight), itertools.count(), itertools.count()
    whose: dict[int, Caller] = {}

    def come(caller: Caller) -> None:
        ticket = next(tickets)
        whose[ticket] = caller
        put(queue, caller, ticket)

    for _ in range(n_names):
        name = next(names)
        for _ in range(n_each):
            come(of(name))
    come(USER)
    n_between, n_turns = 0, 0
    while n_turns < 5:
        caller = whose[queue.take().ticket]
        if caller == USER:
            n_turns, n_between = n_turns + 1, 0
            come(USER)
        else:
            n_between += 1
            come(of(next(names)) if come_and_go else caller)
        assert n_between <= (weight if come_and_go else min(n_names, weight))


@settings(max_examples=50)
@given(st.integers(1, 20), st.integers(1, 16), st.integers(0, 40))
def test_a_principals_fifty_requests_delay_another_by_its_turn_alone(
    n_others, weight, n_before
):
    queue = FairQueue(weight)
    for ticket in range(50):
        put(queue, of("flood"), ticket)
    for ticket in range(50, 50 + n_others):
        put(queue, of(ticket), ticket)
    for _ in range(min(n_before, 20)):
        queue.take()
    put(queue, of("late"), 1000)
    n_waiting = len([*queue.by_caller()])
    taken = [queue.take().ticket for _ in range(n_waiting)]
    assert 1000 in taken


def test_of_a_gateways_principals_the_one_with_the_fewest_permits_is_next():
    queue = FairQueue(16)
    for ticket, name in enumerate("ab"):
        put(queue, of(name), ticket)
    begin(queue, of("a"))
    assert queue.take().ticket == 1


def test_a_gateway_with_its_weight_in_permits_waits_behind_a_user_with_none():
    queue = FairQueue(2)
    for ticket in range(9):
        put(queue, of(ticket), ticket)
    put(queue, USER, 9)
    begin(queue, of("x"), of("y"))
    assert queue.take().ticket == 9
    begin(queue, USER)
    assert queue.take().ticket == 0


@settings(max_examples=30)
@given(st.integers(1, 30), st.integers(1, 16), st.integers(0, 40))
def test_the_order_foretells_who_is_taken_while_no_name_has_all_it_asked_for(
    n_names, weight, n_served
):
    queue = FairQueue(weight)
    for ticket in range(9 * n_names):
        put(queue, of(ticket % n_names), ticket)
    for ticket in range(1000, 1060):
        put(queue, USER, ticket)
    for _ in range(min(n_served, 5 * n_names)):
        queue.take()
    n_next = 2 * n_names
    order = [*queue.order()]
    assert [queue.take().ticket for _ in range(n_next)] == order[:n_next]


# --- limits -------------------------------------------------------------------------------


def test_a_user_is_admitted_whatever_names_a_gateway_makes_up():
    gate = Admission(max_active=1, max_queued=10, gateway_weight=16)
    n_in = 0
    for ticket in range(1000):
        try:
            gate.arrive(ticket, RequestTraits(of(ticket)), now=0)
            n_in += 1
        except QueueFullError:
            pass
    assert n_in <= 1 + 2 * 10
    assert gate.arrive(2000, RequestTraits(USER), now=0) is False


def test_a_principal_is_admitted_however_many_requests_another_has():
    gate = Admission(max_active=1, max_queued=10, gateway_weight=16)
    for ticket in range(11):
        gate.arrive(ticket, RequestTraits(of("flood")), now=0)
    with pytest.raises(QueueFullError):
        gate.arrive(11, RequestTraits(of("flood")), now=0)
    assert gate.arrive(12, RequestTraits(of("other")), now=0) is False


def test_a_gateways_further_principals_have_its_share_where_others_wait():
    quota, shares = Quota(10), Shares([USER, *map(of, range(9))], 1)
    quota.spend(Charge(USER, 1, First(is_first=True)))
    n_fit = 0
    for name in range(9):
        charge = Charge(of(name), 1, First(is_first=True, among=GATEWAY))
        if quota.fits(charge, shares):
            quota.spend(charge)
            n_fit += 1
    assert n_fit == 5  # half of the limit


@pytest.mark.parametrize(("weight", "n_own"), [(1, 5), (4, 8)])
def test_where_another_waits_a_gateway_has_its_part_of_the_queue(weight, n_own):
    quota = Quota(10)
    callers = [USER, *map(of, range(4))]
    shares = Shares(callers, weight)
    n_fit = 0
    for caller in itertools.islice(itertools.cycle(callers[1:]), 40):
        charge = Charge(caller, 1)
        if n_fit == 0 or quota.fits(charge, shares):
            quota.spend(charge)
            n_fit += 1
    assert n_fit in (n_own, n_own - n_own % 4)


def test_where_others_of_its_gateway_wait_a_principal_has_its_part_of_the_queue():
    quota, shares = Quota(10), Shares([of("flood"), of("other")], 16)
    quota.spend(Charge(of("flood"), 1))
    while quota.fits(Charge(of("flood"), 1), shares):
        quota.spend(Charge(of("flood"), 1))
    assert quota.spent == 5


# --- permits ------------------------------------------------------------------------------


@each_case(("max_active", "weight"), [(1, 1), (1, 3), (2, 4), (4, 16)])
def test_a_user_has_its_part_of_the_permits_beside_any_number_of_names(
    max_active, weight
):
    flood = [Visit(0.0, GATEWAY, 20.0, principal=str(n)) for n in range(24)]
    mine = Visit(1.0, USER.user, 5 * QUANTUM_S)
    schedule = Schedule(
        [*flood, mine], max_active=max_active, pause_s=[0.0], gateway_weight=weight
    )
    schedule.run()
    n_turns = 5 * (weight + 1) / max_active + 1
    assert mine.ended <= 1.0 + (n_turns + 1) * QUANTUM_S


def test_a_user_keeps_its_part_of_the_permits_whatever_names_wait():
    mine = [Visit(0.0, USER.user, 20.0) for _ in range(2)]
    flood = [Visit(0.0, GATEWAY, 5.0, principal=str(n)) for n in range(24)]
    Schedule([*mine, *flood], max_active=4, pause_s=[0.0], gateway_weight=1).run()
    assert [visit.lost for visit in mine] == [[], []]


@pytest.mark.parametrize("max_active", [1, 2, 4])
def test_a_principals_requests_that_run_give_way_to_anothers(max_active):
    flood = [Visit(0.0, GATEWAY, 15.0, principal="flood") for _ in range(50)]
    late = Visit(9.0, GATEWAY, 5 * QUANTUM_S, principal="late")
    schedule = Schedule(
        [*flood, late], max_active=max_active, pause_s=[0.0], gateway_weight=16
    )
    schedule.run()
    assert late.began[0] <= 9.0 + QUANTUM_S
    n_turns = 10 if max_active == 1 else 5
    assert late.ended <= 9.0 + (n_turns + 1) * QUANTUM_S


VISITS = st.builds(
    lambda at, uid, name, needs_s: Visit(at, uid, needs_s, principal=name),
    st.integers(0, 40).map(lambda n: n / 4),
    st.integers(0, 2),
    st.sampled_from(["", "a", "b", "c", "d"]),
    st.sampled_from([0.1, 1.0, 5.0, 20.0]),
)


@pytest.mark.slow
@settings(max_examples=100)
@given(st.lists(VISITS, min_size=1, max_size=14), st.integers(1, 4), st.integers(1, 4))
def test_all_end_for_any_callers(visits, max_active, weight):
    schedule = Schedule(
        visits, max_active=max_active, pause_s=[0.05], gateway_weight=weight
    )
    schedule.run()
    assert not any(math.isnan(visit.ended) for visit in visits)
    for visit in visits:
        for began, lost in zip(visit.began, visit.lost, strict=False):
            assert lost - began >= QUANTUM_S - 1e-6
    assert schedule.gate.active == schedule.gate.n_paused == 0


def test_a_user_whose_requests_all_have_one_name_is_as_one_without():
    def ends(name: str) -> list[float]:
        visits = [Visit(n / 4, n % 3, 7.0, principal=name) for n in range(12)]
        Schedule(visits, max_active=2, pause_s=[0.1], gateway_weight=16).run()
        return [visit.ended for visit in visits]

    assert ends("") == ends("ann")
    assert Counter(ends("")).total() == 12
