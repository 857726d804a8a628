import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from torture import litter
from torture.litter import Holdings, children_of, gauge, watched
from torture.outcome import Context, Size

HELD = Holdings(n_workers=1, n_fds=20, n_threads=2, n_tasks=15, n_requests=0)


@pytest.fixture
def context(monkeypatch):
    monkeypatch.setattr(litter, "SETTLE_S", 0.05)
    return Context(Size.SHORT, 1)


def test_a_clean_item_leaves_nothing(context):
    with watched(context):
        with tempfile.TemporaryDirectory():
            pass
    assert context.problems == []


def test_a_temporary_file_that_stays_is_told_and_removed(context):
    before = tempfile.gettempdir()
    with watched(context):
        scratch = Path(tempfile.gettempdir())
        (scratch / "left").touch()
    assert context.problems == ["temporary files are left: ['left']"]
    assert not scratch.exists()
    assert tempfile.gettempdir() == before


def test_a_descriptor_that_stays_is_told(context):
    with watched(context):
        fd = os.open("/dev/null", os.O_RDONLY)
    os.close(fd)
    assert context.problems == ["left behind: 1 descriptors"]


def test_a_child_that_stays_is_told_even_after_its_end(context):
    with watched(context):
        child = subprocess.Popen(["true"])
    child.wait()
    assert context.problems == [f"left behind: process {child.pid}"]


def test_children_are_those_that_are_not_reaped():
    with subprocess.Popen(["true"]) as child:
        assert child.pid in children_of(os.getpid())
    assert child.pid not in children_of(os.getpid())


@pytest.mark.parametrize("name", Holdings._fields)
def test_more_of_anything_is_too_much(name):
    now = HELD._replace(**{name: getattr(HELD, name) + 1})
    assert now.exceeds(HELD)
    assert not HELD.exceeds(HELD)


def test_less_is_not_but_for_a_worker():
    assert not HELD._replace(n_threads=1).exceeds(HELD)
    assert HELD._replace(n_workers=0).exceeds(HELD)


def test_a_gauge_is_the_sum_over_its_labels():
    text = '# HELP a b\na 2.0\nb{x="1"} 3.0\nb{x="2"} 4.0\nab 1.0\n'
    assert (gauge(text, "a"), gauge(text, "b"), gauge(text, "c")) == (2, 7, 0)
