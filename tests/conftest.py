"""Settings and fixtures that all tests share."""

import atexit
import gc
import os
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Final

import pytest
from hypothesis import settings

from tests.fakes.places import places
from tests.scheduling import pytest_xdist_make_scheduler

__all__ = ["pytest_xdist_make_scheduler"]

RESET_BY_PYTHON: Final = {signal.SIGPIPE, signal.SIGXFSZ}
"""Signals that Python ignores, and that `subprocess` resets in children."""

settings.register_profile("inferd", deadline=None, max_examples=100)
settings.load_profile("inferd")


def pytest_configure() -> None:
    """Find the models and the data of `make setup`, whatever `HOME` is now."""
    os.environ.update(places())


def pytest_sessionstart() -> None:
    """Have processes that tests start begin with no signal ignored or blocked.

    A child inherits what its parent ignores, and a shell, `nohup` or a supervisor may have
    started us ignoring some. A handler is not inherited, and one that does nothing leaves
    these signals without effect on us.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals() - RESET_BY_PYTHON:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, _do_nothing)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what only root can do."""
    if item.get_closest_marker("root") and os.geteuid() != 0:
        pytest.skip("needs root")


def _do_nothing(_number: int, _frame: FrameType | None) -> None:
    pass


def pytest_collection() -> None:
    """Collect no garbage while tests are collected: there is none, and they are many."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Have collections look past all that is there by now, which stays to the end."""
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    """Have the interpreter end without a look at all this, which takes it seconds.

    What pytest's own last collections have not freed lives to the end, and what a module
    holds open there is nobody's mistake.
    """
    atexit.register(gc.freeze)
    atexit.register(warnings.simplefilter, "ignore", ResourceWarning)


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """A directory whose path leaves room for a socket's name."""
    with TemporaryDirectory(prefix="inferd-") as path:
        yield Path(path)
