import itertools
import time

import pytest

from bench import quiet


class Machine:
    """A machine of which processes use so many cores, second by second."""

    def __init__(self, monkeypatch, cores):
        self._cores = itertools.chain(cores, itertools.repeat(0.0))
        self._now = self._used = 0.0
        monkeypatch.setattr(time, "monotonic", lambda: self._now)
        monkeypatch.setattr(time, "sleep", self._pass)

    def _pass(self, seconds):
        self._now += seconds
        self._used += next(self._cores) * seconds

    def used(self):
        return self._used

    @property
    def now(self):
        return self._now


def test_it_waits_until_nobody_uses_the_machine(monkeypatch):
    machine = Machine(monkeypatch, [1.0, 1.0, 0.5, 0.1])
    monkeypatch.setattr(quiet, "all_cpu_s", machine.used)
    quiet.wait_until_idle()
    assert machine.now == pytest.approx(4 * quiet.LOOK_S)


def test_what_we_have_started_ourselves_is_no_noise_but_use(monkeypatch):
    machine = Machine(monkeypatch, [])
    monkeypatch.setattr(quiet, "all_cpu_s", lambda: machine.now)
    monkeypatch.setattr(quiet, "other_cpu_s", lambda: 0.0)
    quiet.wait_until_quiet()
    assert machine.now == pytest.approx(quiet.LOOK_S)
    quiet.wait_until_idle()
    assert machine.now > quiet.PATIENCE_S


def test_all_that_runs_is_counted():
    before = quiet.all_cpu_s()
    assert before > 0
    assert quiet.other_cpu_s() <= quiet.all_cpu_s()
