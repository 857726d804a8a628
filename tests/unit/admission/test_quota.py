import pytest
from hypothesis import given, settings, strategies as st

from inferd.admission.quota import Charge, Quota
from inferd.admission.shares import First, Shares
from inferd.backend.caller import Caller
from tests.cases import each_case

CALLERS = st.builds(Caller, st.integers(0, 3), st.sampled_from(["", "a", "b"]))
FIRST = First(is_first=True)
FIRSTS = st.builds(First, st.booleans(), st.none() | st.integers(0, 3))
AMOUNTS = st.builds(Charge, CALLERS, st.integers(0, 20), FIRSTS)


def shares_of(n_users: int) -> Shares:
    return Shares(map(Caller, range(1, n_users + 1)), max_weight=1)


def budget_of(bound: int, *charges: Charge) -> Quota:
    budget = Quota(bound)
    for charge in charges:
        budget.spend(charge)
    return budget


@each_case(
    ("n_users", "units", "has_room"),
    [(1, 7, True), (1, 8, False), (2, 2, True), (2, 3, False), (4, 1, False)],
)
def test_an_amount_fits_its_users_share_and_all(n_users, units, has_room):
    budget = budget_of(10, Charge(Caller(1), 3))
    asked = Charge(Caller(1), units)
    assert budget.fits(asked, shares_of(n_users)) is has_room


def test_a_share_that_is_free_is_of_no_use_where_all_is_spent():
    budget = budget_of(10, Charge(Caller(1), 9))
    assert not budget.fits(Charge(Caller(2), 2), shares_of(2))


@each_case(
    ("firsts", "units", "has_room"),
    [
        ([10], 5, True),
        ([10], 6, False),
        ([1, 1], 8, True),
        ([1, 1], 9, False),
        ([20, 10], 3, True),
        ([20, 10], 4, False),
        ([20, 0, 0], 5, True),
        ([1] * 10, 1, False),
    ],
)
def test_a_first_one_fits_what_firsts_leave_or_an_even_share(firsts, units, has_room):
    there = [Charge(Caller(uid), each, FIRST) for uid, each in enumerate(firsts)]
    budget = budget_of(10, *there, Charge(Caller(20), 100))
    asked = Charge(Caller(21), units, FIRST)
    assert budget.fits(asked, shares_of(30)) is has_room


@settings(max_examples=50)
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 40)), max_size=30))
def test_firsts_are_bounded_however_they_come_and_go(steps):
    budget, there = Quota(30), list[Charge]()
    for comes, units in steps:
        charge = Charge(Caller(len(there)), units, FIRST)
        if not comes and there:
            budget.release(there.pop(units % len(there)))
        elif budget.fits(charge, Shares([charge.caller], max_weight=1)):
            budget.spend(charge)
            there.append(charge)
        sizes = [each.units for each in there]
        shares = sum(30 // place for place in range(2, len(there) + 1))
        assert sum(sizes) <= max([30, *sizes]) + shares


@pytest.mark.parametrize("is_first", [True, False])
def test_where_there_is_nothing_to_weigh_it_against_any_amount_fits(is_first):
    assert budget_of(10).fits(Charge(Caller(1), 11, First(is_first)), shares_of(1))


@settings(max_examples=30)
@given(st.lists(AMOUNTS))
def test_what_is_given_back_leaves_nothing(charges):
    budget = budget_of(10, *charges)
    assert budget.spent == sum(each.units for each in charges)
    for charge in charges:
        budget.release(charge)
    assert vars(budget) == vars(budget_of(10))
