"""The worker's llama.cpp code, in the test's own process, on tiny models."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from inferd.worker.llama.backend import LlamaBackend
from tests.model.tiny import write_tiny_bert, write_tiny_mamba, write_tiny_model
from tests.model.tiny_projector import write_tiny_projector
from tests.unit.worker.llama.running import loaded_once

N_TICKETS = 100
"""Jobs are numbered below this."""


@pytest.fixture(scope="package")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that writes."""
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny.gguf")


@pytest.fixture(scope="package")
def tiny_grid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model for which places in pictures have a row and a column."""
    path = tmp_path_factory.mktemp("models") / "grid.gguf"
    return write_tiny_model(path, has_grids=True)


@pytest.fixture(scope="package")
def tiny_mamba(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that writes, and cannot take back a token."""
    return write_tiny_mamba(tmp_path_factory.mktemp("models") / "mamba.gguf")


@pytest.fixture(scope="package")
def tiny_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that embeds."""
    return write_tiny_bert(tmp_path_factory.mktemp("models") / "bert.gguf")


@pytest.fixture(scope="package")
def tiny_ranker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that scores."""
    directory = tmp_path_factory.mktemp("models")
    return write_tiny_bert(directory / "rank.gguf", pooling="rank")


@pytest.fixture(scope="package")
def tiny_projector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A projector for pictures and sound."""
    path = tmp_path_factory.mktemp("models") / "projector.gguf"
    return write_tiny_projector(path, hears=True)


@pytest.fixture(scope="package")
def loaded_seer(tiny_model: Path, tiny_projector: Path) -> Iterator[LlamaBackend]:
    with loaded_once(tiny_model, mmproj=str(tiny_projector)) as backend:
        yield backend


@pytest.fixture(scope="package")
def loaded(tiny_model: Path) -> Iterator[LlamaBackend]:
    with loaded_once(tiny_model) as backend:
        yield backend


@pytest.fixture(scope="package")
def loaded_bert(tiny_bert: Path) -> Iterator[LlamaBackend]:
    with loaded_once(tiny_bert) as backend:
        yield backend


@pytest.fixture(scope="package")
def loaded_ranker(tiny_ranker: Path) -> Iterator[LlamaBackend]:
    with loaded_once(tiny_ranker) as backend:
        yield backend


def lent(backend: LlamaBackend) -> Iterator[LlamaBackend]:
    yield backend
    was_busy = backend.is_busy
    for ticket in range(N_TICKETS):
        backend.drop(ticket)  # a test that failed is one failure
    assert not was_busy, "the test left a job behind"


@pytest.fixture
def backend(loaded: LlamaBackend) -> Iterator[LlamaBackend]:
    """A backend that writes, shared by tests that leave it idle."""
    yield from lent(loaded)


@pytest.fixture
def seer(loaded_seer: LlamaBackend) -> Iterator[LlamaBackend]:
    """A backend that reads pictures and sound, shared by tests that leave it idle."""
    yield from lent(loaded_seer)


@pytest.fixture
def encoder(loaded_bert: LlamaBackend) -> Iterator[LlamaBackend]:
    """A backend that embeds, shared by tests that leave it idle."""
    yield from lent(loaded_bert)


@pytest.fixture
def ranker(loaded_ranker: LlamaBackend) -> Iterator[LlamaBackend]:
    """A backend that scores, shared by tests that leave it idle."""
    yield from lent(loaded_ranker)
