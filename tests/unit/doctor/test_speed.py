import pytest

from inferd.doctor.speed import estimate_speed, measure_bandwidth, speed_here
from inferd.limits.models import (
    ASSUMED_BANDWIDTH_BYTES_PER_S,
)

GB = 10**9


@pytest.fixture(autouse=True)
def few_bytes(monkeypatch):
    monkeypatch.setattr("inferd.doctor.speed.BANDWIDTH_PROBE_BYTES", 1000)


@pytest.mark.parametrize(
    ("token_bytes", "name"),
    [
        (GB // 3, "fast"),
        (GB, "fluent"),
        (4 * GB, "slow"),
        (40 * GB, "very slow"),
    ],
)
def test_a_class_follows_from_the_bytes_of_a_token(token_bytes, name):
    speed = estimate_speed(token_bytes, 10 * GB, is_measured=True)
    assert speed.speed_class == name
    assert speed.tokens_per_s == pytest.approx(10 * GB / token_bytes)


def test_the_fastest_copy_counts():
    times = iter([0, 4, 10, 11, 20, 22])
    measured = measure_bandwidth(2**40, lambda: next(times))
    assert measured == 1000


def test_a_clock_that_stands_still_measures_nothing():
    assert measure_bandwidth(2**40, lambda: 0.0) is None


def test_nothing_is_measured_where_memory_is_short():
    speed = speed_here(GB, 3999)
    assert not speed.bandwidth_is_measured
    assert speed.bandwidth_bytes_per_s == ASSUMED_BANDWIDTH_BYTES_PER_S
    assert speed_here(GB, 2**40).bandwidth_is_measured
