import pytest
from hypothesis import given, settings, strategies as st

from inferd.admission.budget import Amount, Budget

AMOUNTS = st.builds(Amount, st.integers(0, 3), st.integers(0, 20), st.booleans())


def budget_of(bound: int, *amounts: Amount) -> Budget:
    budget = Budget(bound)
    for amount in amounts:
        budget.spend(amount)
    return budget


@pytest.mark.parametrize(
    ("n_users", "units", "has_room"),
    [(1, 7, True), (1, 8, False), (2, 2, True), (2, 3, False), (4, 1, False)],
)
def test_an_amount_fits_its_users_share_and_all(n_users, units, has_room):
    budget = budget_of(10, Amount(1, 3, is_first=False))
    asked = Amount(1, units, is_first=False)
    assert budget.has_room(asked, n_users=n_users) is has_room


def test_a_share_that_is_free_is_of_no_use_where_all_is_spent():
    budget = budget_of(10, Amount(1, 9, is_first=False))
    assert not budget.has_room(Amount(2, 2, is_first=False), n_users=2)


@pytest.mark.parametrize(("units", "has_room"), [(4, True), (5, False)])
def test_a_first_one_is_weighed_against_first_ones_alone(units, has_room):
    first, other = Amount(1, 6, is_first=True), Amount(2, 100, is_first=False)
    asked = Amount(3, units, is_first=True)
    assert budget_of(10, first, other).has_room(asked, n_users=3) is has_room


@pytest.mark.parametrize("is_first", [True, False])
def test_where_there_is_nothing_to_weigh_it_against_any_amount_fits(is_first):
    assert budget_of(10).has_room(Amount(1, 11, is_first), n_users=1)


@settings(max_examples=30)
@given(st.lists(AMOUNTS))
def test_what_is_given_back_leaves_nothing(amounts):
    budget = budget_of(10, *amounts)
    assert budget.spent == sum(each.units for each in amounts)
    for amount in amounts:
        budget.give_back(amount)
    assert vars(budget) == vars(budget_of(10))
