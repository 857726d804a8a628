import signal

import pytest
from hypothesis import given, strategies as st

from inferd.engine.supervisor.process import describe_exit
from inferd.engine.supervisor.variant_fallback import VariantFallback
from inferd.ipc.worker import CpuVariant
from tests.cases import each_case

BEST = CpuVariant(name="avx512", fallback="avx2")
MIDDLE = CpuVariant(name="avx2", fallback="plain")
LAST = CpuVariant(name="plain")
SIGILL = describe_exit(-signal.SIGILL)


def test_nothing_has_crashed_at_first():
    assert VariantFallback().crashed == ()


@each_case("number", ["ABRT", "BUS", "FPE", "ILL", "SEGV"])
def test_after_a_crash_the_next_variant_is_tried(number):
    steps = VariantFallback()
    assert steps.died(f"killed by SIG{number}", BEST) == "avx2"
    assert steps.crashed == ("avx512",)


@pytest.mark.parametrize(
    "reason", ["killed by SIGKILL", "exited with code 3", "hung: no message for 60 s"]
)
def test_other_deaths_blame_no_variant(reason):
    steps = VariantFallback()
    assert steps.died(reason, BEST) == ""
    assert steps.crashed == ()


def test_a_crash_before_any_variant_was_loaded_blames_nothing():
    steps = VariantFallback()
    assert steps.died(SIGILL, None) == ""
    assert steps.crashed == ()


def test_a_crash_of_the_last_variant_clears_the_list():
    steps = VariantFallback()
    steps.died(SIGILL, BEST)
    assert steps.died(SIGILL, LAST) == ""
    assert steps.crashed == ()


def test_one_that_has_been_ready_is_not_to_blame_for_a_crash():
    steps = VariantFallback()
    steps.got_ready(BEST)
    assert steps.died(SIGILL, BEST) == ""
    assert steps.crashed == ()


def test_one_that_has_been_ready_clears_no_other():
    steps = VariantFallback()
    steps.died(SIGILL, BEST)
    steps.got_ready(MIDDLE)
    assert steps.died(SIGILL, MIDDLE) == ""
    assert steps.crashed == ("avx512",)


def test_the_list_is_cleared_if_the_last_one_was_ready_and_crashes():
    steps = VariantFallback()
    steps.died(SIGILL, BEST)
    steps.got_ready(LAST)
    assert steps.died(SIGILL, LAST) == ""
    assert steps.crashed == ()


def test_a_worker_without_variants_proves_nothing():
    steps = VariantFallback()
    steps.got_ready(None)
    assert steps.died(SIGILL, BEST) == "avx2"


@given(st.lists(st.text(min_size=1), min_size=1, max_size=9, unique=True))
def test_each_variant_is_tried_once_before_the_death_counts(names):
    steps = VariantFallback()
    for name, lower in zip(names, [*names[1:], ""], strict=True):
        assert name not in steps.crashed
        assert steps.died(SIGILL, CpuVariant(name=name, fallback=lower)) == lower
    assert steps.crashed == ()
