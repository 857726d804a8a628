from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

from inferd.dialects.effort import TooMuchWorkError, allowed_for, bounded, step
from inferd.limits import EFFORT_STEPS, EFFORT_STEPS_PER_BYTE


@given(st.lists(st.integers(0, 50)), st.integers(0, 500))
def test_work_ends_at_the_step_over_its_bound(steps, most):
    n_taken = 0
    with suppress(TooMuchWorkError), bounded(most):
        for each in steps:
            step(each)
            n_taken += each
    assert n_taken <= most
    assert (n_taken == sum(steps)) == (sum(steps) <= most)


def test_without_a_bound_no_step_is_counted():
    step(10**12)


def test_bounds_in_each_other_count_apart():
    with bounded(5) as outer:
        with pytest.raises(TooMuchWorkError), bounded(1):
            step(2)
        step()
    assert outer.n_taken == 1


def test_what_is_allowed_grows_with_what_was_sent():
    assert allowed_for(0) == EFFORT_STEPS
    assert allowed_for(1000) - allowed_for(0) == 1000 * EFFORT_STEPS_PER_BYTE
