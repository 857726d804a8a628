"""The worker's llama.cpp code, in the test's own process, on a tiny model."""

from pathlib import Path

import pytest

from inferd.config import LlamaCppSettings
from inferd.worker.llama.backend import LlamaBackend
from tests.model.tiny import write_tiny_model

N_SLOTS = 3


@pytest.fixture(scope="package")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny.gguf")


@pytest.fixture(scope="package")
def loaded(tiny_model: Path) -> LlamaBackend:
    settings = LlamaCppSettings(name="tiny", model=str(tiny_model), n_threads=1)
    backend = LlamaBackend(settings, n_slots=N_SLOTS)
    backend.load(lambda _: None)
    return backend


@pytest.fixture
def backend(loaded: LlamaBackend) -> LlamaBackend:
    assert not loaded.is_busy, "the test before left a job behind"
    return loaded
