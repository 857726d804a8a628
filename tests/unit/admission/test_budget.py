from hypothesis import given, strategies as st

from inferd.admission.budget import (
    DAY_S,
    MINUTE_S,
    Budget,
    BudgetLimits,
    BudgetRefusal,
    BudgetUse,
    is_plausible,
)
from inferd.limits.admission import BUDGET_RESERVED_RETRY_S

NOON = 20_000 * DAY_S + DAY_S // 2


def test_requests_are_bounded_in_each_minute():
    budget = Budget(BudgetLimits(requests_per_minute=2))
    for _ in range(2):
        assert budget.refusal(1, NOON + 10) is None
        budget.reserve(1, NOON + 10)
        budget.settle(1, 1, NOON + 10)
    assert budget.refusal(1, NOON + 10) == BudgetRefusal(
        "max_requests_per_minute", 2, 50.0
    )
    assert budget.refusal(1, NOON + MINUTE_S) is None


def test_tokens_are_reserved_then_settled_and_free_again_the_next_day():
    budget = Budget(BudgetLimits(tokens_per_day=100))
    budget.reserve(70, NOON)
    assert budget.refusal(30, NOON) is None
    # they may be free once the other request has ended, and are free at midnight
    assert budget.refusal(31, NOON) == BudgetRefusal(
        "max_tokens_per_day", 100, BUDGET_RESERVED_RETRY_S
    )
    budget.settle(70, 9, NOON)
    assert budget.left(NOON) == BudgetLimits(None, 91)
    assert budget.refusal(92, NOON) == BudgetRefusal(
        "max_tokens_per_day", 100, DAY_S / 2
    )
    assert budget.refusal(101, NOON) == BudgetRefusal("max_tokens_per_day", 100, None)
    assert budget.refusal(100, NOON + DAY_S) is None


def test_one_that_runs_past_midnight_counts_for_the_day_of_its_end():
    budget = Budget(BudgetLimits(tokens_per_day=100))
    budget.reserve(60, NOON)
    assert budget.left(NOON + DAY_S) == BudgetLimits(None, 40)
    budget.settle(60, 50, NOON + DAY_S)
    assert budget.left(NOON + DAY_S) == BudgetLimits(None, 50)


def test_what_is_kept_counts_what_is_reserved_and_a_clock_that_is_set_back_changes_nothing():
    budget = Budget(BudgetLimits(5, 100))
    budget.reserve(60, NOON)
    use = budget.use(NOON)
    assert (use.requests, use.tokens) == (1, 60)
    again = Budget(BudgetLimits(5, 100), use)
    assert again.left(NOON) == BudgetLimits(4, 40)
    assert again.left(NOON - 3 * DAY_S) == BudgetLimits(4, 40)
    assert is_plausible(use, NOON - DAY_S)
    assert not is_plausible(use, NOON - 2 * DAY_S)
    assert not is_plausible(BudgetUse(minute=2**60), NOON)


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60), st.booleans())),
    st.integers(1, 200),
)
def test_a_day_never_uses_more_than_its_bound_if_answers_keep_to_theirs(
    requests, bound
):
    budget, running, used = Budget(BudgetLimits(tokens_per_day=bound)), [], 0
    for n_reserved, n_used, ends in requests:
        if budget.refusal(n_reserved, NOON) is None:
            budget.reserve(n_reserved, NOON)
            running.append((n_reserved, min(n_reserved, n_used)))
        if ends and running:
            n_first, n_counted = running.pop(0)
            budget.settle(n_first, n_counted, NOON)
            used += n_counted
        assert used <= budget.use(NOON).tokens <= bound
