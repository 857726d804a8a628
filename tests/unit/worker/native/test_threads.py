import os
import time

import pytest
from hypothesis import given, strategies as st

from inferd.worker.native.threads import CpuLoad, CpuLoadMeter, ThreadGovernor
from tests.cases import each_case

WINDOWS = st.lists(
    st.builds(CpuLoad, st.floats(0, 64), st.floats(0.25, 5)), max_size=50
)


@given(
    windows=WINDOWS,
    n_cores=st.integers(1, 64),
    wanted=st.integers(1, 64),
    n_busy=st.integers(0, 3),
)
def test_there_is_always_a_thread_and_never_too_many(windows, n_cores, wanted, n_busy):
    governor = ThreadGovernor(n_cores=n_cores, max_threads=wanted)
    for window in windows:
        governor.observe(window)
        assert 1 <= governor.threads(n_busy) <= wanted


@each_case(
    ("load", "n_threads"), [(0.0, 4), (0.3, 4), (0.5, 3), (1.1, 3), (1.5, 2), (9.0, 1)]
)
def test_each_core_that_others_take_costs_a_thread(load, n_threads):
    governor = ThreadGovernor(n_cores=4, max_threads=4)
    governor.observe(CpuLoad(load, 0.25))
    assert governor.threads(0) == n_threads


def test_fewer_threads_than_cores_make_room_for_others():
    governor = ThreadGovernor(n_cores=8, max_threads=4)
    governor.observe(CpuLoad(3.0, 0.25))
    assert governor.threads(0) == 4


def test_a_core_that_is_busy_beside_decoding_is_missed_for_as_long_as_it_is():
    governor = ThreadGovernor(n_cores=2, max_threads=2)
    assert [governor.threads(n_busy) for n_busy in (0, 1, 0)] == [2, 1, 2]


def threads_after(governor, *windows):
    numbers = []
    for window in windows:
        governor.observe(window)
        numbers.append(governor.threads(0))
    return numbers


def test_threads_come_back_after_a_calm_second_and_not_before():
    governor = ThreadGovernor(n_cores=2, max_threads=2)
    calm = CpuLoad(0.0, 0.25)
    assert threads_after(governor, CpuLoad(1.0, 0.25), *[calm] * 4) == [1, 1, 1, 1, 2]


def test_a_calm_second_may_be_one_long_step():
    governor = ThreadGovernor(n_cores=2, max_threads=2)
    assert threads_after(governor, CpuLoad(1.0, 0.25), CpuLoad(0.0, 1.7)) == [1, 2]


def test_one_busy_window_begins_the_wait_anew():
    governor = ThreadGovernor(n_cores=2, max_threads=2)
    busy, calm = CpuLoad(1.0, 0.25), CpuLoad(0.0, 0.3)
    windows = [busy, calm, calm, calm, busy, calm, calm, calm, calm]
    assert threads_after(governor, *windows) == [1] * 8 + [2]


class Clock:
    """Time and processor time as a test sets them."""

    def __init__(self, monkeypatch, stat):
        self._stat = stat
        self.now = 100.0
        self.own = 0.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        times = os.times_result
        monkeypatch.setattr(os, "times", lambda: times((self.own, 0.0, 0.0, 0.0, 0.0)))
        self.busy(0)

    def busy(self, seconds):
        ticks = int(seconds * os.sysconf("SC_CLK_TCK"))
        ours = min(os.sched_getaffinity(0))
        self._stat.write_text(
            f"cpu {ticks} 0 0 0 0 0 0 0\ncpu{ours} {ticks} 0 0 50 9 0 0 0\n"
            "cpu9999 777 777 777 0 0 0 0 0\nintr 1 2 3\n"
        )


def test_what_others_use_is_all_that_is_used_less_our_own(monkeypatch, tmp_path):
    clock = Clock(monkeypatch, tmp_path / "stat")
    load = CpuLoadMeter(tmp_path / "stat")
    clock.now, clock.own = 100.5, 0.25
    clock.busy(0.5)
    assert load.measure() == pytest.approx((0.5, 0.5))


def test_a_window_that_is_too_short_says_nothing(monkeypatch, tmp_path):
    clock = Clock(monkeypatch, tmp_path / "stat")
    load = CpuLoadMeter(tmp_path / "stat")
    clock.now += 0.1
    assert load.measure() is None


def test_what_others_did_while_we_were_idle_does_not_count(monkeypatch, tmp_path):
    clock = Clock(monkeypatch, tmp_path / "stat")
    load = CpuLoadMeter(tmp_path / "stat")
    clock.now += 100
    clock.busy(100)
    load.resume()
    clock.now += 0.5
    assert load.measure() == pytest.approx((0, 0.5))


def test_short_jobs_one_after_the_other_are_a_window_all_the_same(
    monkeypatch, tmp_path
):
    clock = Clock(monkeypatch, tmp_path / "stat")
    load = CpuLoadMeter(tmp_path / "stat")
    measured: list[float] = []
    for step in range(1, 31):
        clock.now = 100 + step / 100
        clock.busy(step / 100)
        load.resume()
        if window := load.measure():
            measured.append(window.cores)
    assert measured == [pytest.approx(1, abs=0.1)]


def test_a_kernel_that_does_not_tell_counts_as_quiet(tmp_path):
    load = CpuLoadMeter(tmp_path / "missing")
    load._window_start = (load._window_start[0] - 1.0, load._window_start[1])
    assert load.measure() == pytest.approx((0, 1), abs=0.2)
