from hypothesis import given, strategies as st

from inferd.limits.server import (
    ACCEPT_BURST_INTERVAL_S,
    ACCEPT_BURST_PASS_S,
    ACCEPT_BURST_S,
    ACCEPT_PASS_S,
)
from inferd.server.listen.accept_budget import AcceptBudget

ROUNDING_S = 1e-9


@given(st.lists(st.floats(0, 0.1)))
def test_a_flood_gets_one_burst_and_what_comes_back_of_it(pauses_s):
    budget, now, extra_s = AcceptBudget(), 0.0, 0.0
    for pause_s in pauses_s:
        now += pause_s
        pass_s = budget.pass_s(now)
        assert ACCEPT_PASS_S <= pass_s <= ACCEPT_BURST_PASS_S
        budget.spend(pass_s)
        extra_s += pass_s - ACCEPT_PASS_S
    most_s = ACCEPT_BURST_S * (1 + now / ACCEPT_BURST_INTERVAL_S)
    assert extra_s <= most_s + ROUNDING_S


def test_a_pass_within_the_least_time_costs_nothing_of_the_burst():
    budget = AcceptBudget()
    for _ in range(1000):
        assert budget.pass_s(0.0) == ACCEPT_BURST_PASS_S
        budget.spend(ACCEPT_PASS_S)


def test_no_more_than_a_burst_is_saved_up():
    budget, extra_s = AcceptBudget(), 0.0
    budget.pass_s(0.0)
    for _ in range(1000):
        pass_s = budget.pass_s(100 * ACCEPT_BURST_INTERVAL_S)
        budget.spend(pass_s)
        extra_s += pass_s - ACCEPT_PASS_S
    assert abs(extra_s - ACCEPT_BURST_S) < ROUNDING_S


def test_one_connection_that_takes_long_leaves_no_debt():
    budget = AcceptBudget()
    budget.pass_s(0.0)
    budget.spend(100.0)
    assert budget.pass_s(0.0) == ACCEPT_PASS_S
    assert budget.pass_s(ACCEPT_BURST_INTERVAL_S) == ACCEPT_BURST_PASS_S
