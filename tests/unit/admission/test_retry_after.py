import pytest
from hypothesis import given, settings, strategies as st

from inferd.admission.retry_after import RetryEstimate
from inferd.limits.admission import RETRY_AFTER_MAX_MS, RETRY_AFTER_MIN_MS


def hint(*held_s: float, n_turns: int = 1, max_active: int = 1) -> int | None:
    pace = RetryEstimate()
    for each in held_s:
        pace.note(each)
    return pace.retry_after_ms(n_turns=n_turns, max_active=max_active)


def test_nothing_is_known_before_the_first():
    assert hint() is None


@pytest.mark.parametrize(
    ("n_turns", "max_active", "expected_ms"), [(1, 1, 2000), (3, 1, 6000), (3, 2, 3000)]
)
def test_turns_follow_one_another_on_each_permit(n_turns, max_active, expected_ms):
    assert hint(2, n_turns=n_turns, max_active=max_active) == expected_ms


def test_the_latest_count_most():
    assert hint(1, 9) == 2000
    assert hint(*[1] * 5, *[9] * 40) == pytest.approx(9000, abs=100)


@pytest.mark.parametrize(
    ("held_s", "expected_ms"), [(0, RETRY_AFTER_MIN_MS), (1e9, RETRY_AFTER_MAX_MS)]
)
def test_a_hint_is_neither_a_loop_nor_a_dismissal(held_s, expected_ms):
    assert hint(held_s) == expected_ms


@settings(max_examples=30)
@given(st.lists(st.floats(0.1, 50), min_size=1, max_size=30))
def test_a_hint_is_between_the_shortest_and_the_longest(held_s):
    told_ms = hint(*held_s)
    assert told_ms is not None
    assert 1000 * min(held_s) - 1 <= told_ms <= 1000 * max(held_s) + 1
