import pytest
from hypothesis import given, strategies as st

from attack.measures import DONE, HUNG, N_SLOWEST, Sample, Tally, latency

SECONDS = st.floats(0.0001, 2)
EVERY_S = 0.01


def samples(*seconds, code=DONE):
    return [Sample(each, each, code) for each in seconds]


def test_a_stall_counts_for_all_that_would_have_been_asked_meanwhile():
    found = latency(samples(*[0.001] * 99, 2.0), EVERY_S)
    assert (found.n, found.max_ms) == (100, 2000)
    assert found.p50_ms > 500
    assert found.p99_ms > 1900


@given(st.lists(SECONDS, min_size=1, max_size=50))
def test_figures_are_in_order_and_nobody_is_forgotten(seconds):
    found = latency(samples(*seconds), EVERY_S)
    assert found.p50_ms <= found.p99_ms <= found.max_ms
    assert found.max_ms == pytest.approx(max(seconds) * 1000, abs=0.01)
    assert found.n == sum(found.codes.values()) == len(seconds)


@given(st.lists(st.floats(0.0001, 0.009), min_size=1, max_size=50))
def test_what_is_fast_counts_once(seconds):
    found = latency(samples(*seconds), EVERY_S)
    assert found.p50_ms == pytest.approx(
        sorted(seconds)[-(-len(seconds) // 2) - 1] * 1000, abs=0.01
    )


def test_what_hangs_was_not_served():
    found = latency([*samples(0.1), *samples(1, code=HUNG)], EVERY_S)
    assert (found.n_failed, found.codes) == (1, {DONE: 1, HUNG: 1})


def test_nothing_is_zeroes():
    assert latency([], EVERY_S).max_ms == 0


@given(st.lists(SECONDS, max_size=30), st.lists(SECONDS, max_size=30))
def test_tallies_keep_the_slowest_of_all(mine, others):
    tally, more = Tally(), Tally()
    for each in samples(*mine):
        tally.enter(each)
    for each in samples(*others):
        more.enter(each)
    tally.add(more)
    worst = sorted([*mine, *others], reverse=True)[:N_SLOWEST]
    assert [each.seconds for each in tally.slowest] == worst
    assert tally.codes[DONE] == len(mine) + len(others)
