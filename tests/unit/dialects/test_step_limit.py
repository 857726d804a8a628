from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

from inferd.dialects.step_limit import TooMuchWorkError, limited_steps, max_steps, step
from inferd.limits.prompts import TRANSLATION_STEPS, TRANSLATION_STEPS_PER_BYTE


@given(st.lists(st.integers(0, 50)), st.integers(0, 500))
def test_work_ends_at_the_step_over_its_bound(steps, most):
    n_taken = 0
    with suppress(TooMuchWorkError), limited_steps(most):
        for each in steps:
            step(each)
            n_taken += each
    assert n_taken <= most
    assert (n_taken == sum(steps)) == (sum(steps) <= most)


def test_without_a_bound_no_step_is_counted():
    step(10**12)


def test_bounds_in_each_other_count_apart():
    with limited_steps(5) as outer:
        with pytest.raises(TooMuchWorkError), limited_steps(1):
            step(2)
        step()
    assert outer.n_taken == 1


def test_what_is_allowed_grows_with_what_was_sent():
    assert max_steps(0) == TRANSLATION_STEPS
    assert max_steps(1000) - max_steps(0) == 1000 * TRANSLATION_STEPS_PER_BYTE
