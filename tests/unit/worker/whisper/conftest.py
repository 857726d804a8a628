"""The worker's whisper.cpp code, in the test's own process, on a model of nonsense."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from inferd.worker.whisper.backend import WhisperBackend
from tests.model.tiny_whisper import write_tiny_whisper
from tests.unit.worker.whisper.models import RECITED_MS, write_model
from tests.unit.worker.whisper.running import load

N_TICKETS = 100


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of English that hears nonsense."""
    return write_model(tmp_path_factory.mktemp("whisper") / "small.bin")


@pytest.fixture(scope="session")
def loaded_small(small_model: Path) -> WhisperBackend:
    return load(small_model)[0]


@pytest.fixture(scope="session")
def reciter(tmp_path_factory: pytest.TempPathFactory) -> WhisperBackend:
    """A backend that says its piece for each half minute."""
    path = tmp_path_factory.mktemp("whisper") / "reciter.bin"
    return load(write_tiny_whisper(path, end_ms=RECITED_MS))[0]


@pytest.fixture
def backend(loaded_small: WhisperBackend) -> Iterator[WhisperBackend]:
    """A backend, shared by tests that leave it idle."""
    yield loaded_small
    was_busy = loaded_small.is_busy
    for ticket in range(N_TICKETS):
        loaded_small.drop(ticket)
    assert not was_busy, "the test left a job behind"
