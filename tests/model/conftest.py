"""Fixtures of the tests that load a real model."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from inferd.config.kinds.llamacpp import LlamaCppSettings
from inferd.worker.llama.gguf.files import ModelFile
from inferd.worker.llama.grammar.constraint import GrammarVocabulary
from inferd.worker.llama.library.binding import load_library
from inferd.worker.llama.model.weights import LlamaModel
from tests.daemon.fixtures import daemons, make_daemon, pytest_runtest_makereport
from tests.daemon.harness import DaemonProcess, llamacpp
from tests.model.embedded import embedded_path
from tests.model.shortened import write_shortened
from tests.model.tiny import write_tiny_model
from tests.model.walking import Walker

__all__ = ["make_daemon", "pytest_runtest_makereport"]


@pytest.fixture(scope="session")
def tiny_f32(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose answers do not depend on who else is decoding."""
    return write_tiny_model(tmp_path_factory.mktemp("tiny") / "f32.gguf", kind="f32")


@pytest.fixture(scope="session")
def tiny_q8_0(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model on the code paths that a build for the wrong processor breaks."""
    return write_tiny_model(tmp_path_factory.mktemp("tiny") / "q8_0.gguf", kind="q8_0")


@pytest.fixture(scope="session")
def embedded_chat() -> Path:
    """The model that a daemon without a configuration serves."""
    return embedded_path("chat")


@pytest.fixture(scope="session")
def shortened_chat(
    embedded_chat: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The same tokens and one layer, for tests that leave a model no choice."""
    path = tmp_path_factory.mktemp("shortened") / "chat.gguf"
    return write_shortened(embedded_chat, path)


@pytest.fixture(scope="session")
def walker(embedded_chat: Path) -> Iterator[Walker]:
    """What writes answers with that model's tokens and without the model."""
    load_library()
    model = LlamaModel(
        ModelFile(embedded_chat), LlamaCppSettings(name="m"), lambda: None
    )
    with closing(Walker(model, GrammarVocabulary(model))) as walker:
        yield walker


@pytest.fixture(scope="module")
def tiny_daemon(tiny_f32: Path) -> Iterator[DaemonProcess]:
    """A daemon that serves two at once, for tests that leave it as it was."""
    with daemons() as make:
        yield make(
            {
                "backend": [llamacpp(tiny_f32, prompt_cache_mb=0)],
                "admission": {"max_active": 2, "max_queued": 2},
            }
        ).start()
