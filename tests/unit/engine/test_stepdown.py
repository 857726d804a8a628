import signal

import pytest
from hypothesis import given, strategies as st

from inferd.engine.process import describe_exit
from inferd.engine.stepdown import StepDown
from inferd.ipc import Variant

BEST = Variant(name="avx512", lower="avx2")
MIDDLE = Variant(name="avx2", lower="plain")
LAST = Variant(name="plain")
SIGILL = describe_exit(-signal.SIGILL)


def test_nothing_has_crashed_at_first():
    assert StepDown().crashed == ()


@pytest.mark.parametrize("number", ["ABRT", "BUS", "FPE", "ILL", "SEGV"])
def test_after_a_crash_the_next_variant_is_tried(number):
    steps = StepDown()
    assert steps.died(f"killed by SIG{number}", BEST) == "avx2"
    assert steps.crashed == ("avx512",)


@pytest.mark.parametrize(
    "reason", ["killed by SIGKILL", "exited with code 3", "hung: no word for 60 s"]
)
def test_what_is_no_crash_blames_nothing(reason):
    steps = StepDown()
    assert steps.died(reason, BEST) == ""
    assert steps.crashed == ()


def test_a_crash_before_any_variant_was_loaded_blames_nothing():
    steps = StepDown()
    assert steps.died(SIGILL, None) == ""
    assert steps.crashed == ()


def test_a_crash_of_the_last_one_forgives_all():
    steps = StepDown()
    steps.died(SIGILL, BEST)
    assert steps.died(SIGILL, LAST) == ""
    assert steps.crashed == ()


def test_one_that_has_been_ready_is_not_to_blame_for_a_crash():
    steps = StepDown()
    steps.proved(BEST)
    assert steps.died(SIGILL, BEST) == ""
    assert steps.crashed == ()


def test_one_that_has_been_ready_clears_no_other():
    steps = StepDown()
    steps.died(SIGILL, BEST)
    steps.proved(MIDDLE)
    assert steps.died(SIGILL, MIDDLE) == ""
    assert steps.crashed == ("avx512",)


def test_all_are_forgiven_where_the_last_one_has_been_ready_and_crashes():
    steps = StepDown()
    steps.died(SIGILL, BEST)
    steps.proved(LAST)
    assert steps.died(SIGILL, LAST) == ""
    assert steps.crashed == ()


def test_a_worker_without_variants_proves_nothing():
    steps = StepDown()
    steps.proved(None)
    assert steps.died(SIGILL, BEST) == "avx2"


@given(st.lists(st.text(min_size=1), min_size=1, max_size=9, unique=True))
def test_each_variant_is_tried_once_before_the_death_counts(names):
    steps = StepDown()
    for name, lower in zip(names, [*names[1:], ""], strict=True):
        assert name not in steps.crashed
        assert steps.died(SIGILL, Variant(name=name, lower=lower)) == lower
    assert steps.crashed == ()
