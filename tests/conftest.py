"""Settings and fixtures that all tests share."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings

settings.register_profile("inferd", deadline=None, max_examples=200)
settings.load_profile("inferd")


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """A directory whose path leaves room for a socket's name."""
    with TemporaryDirectory(prefix="inferd-") as path:
        yield Path(path)
