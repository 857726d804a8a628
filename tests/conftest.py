"""Settings and fixtures that all tests share."""

import gc
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings

settings.register_profile("inferd", deadline=None, max_examples=200)
settings.load_profile("inferd")


def pytest_collection() -> None:
    """Collect no garbage while tests are collected: there is none, and they are many."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Have collections look past all that is there by now, which stays to the end."""
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    """Have the interpreter end as without all this."""
    gc.unfreeze()


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """A directory whose path leaves room for a socket's name."""
    with TemporaryDirectory(prefix="inferd-") as path:
        yield Path(path)
