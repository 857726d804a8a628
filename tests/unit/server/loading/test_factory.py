from pathlib import Path

import pytest

from inferd.config.kinds.llamacpp import LlamaCppSettings
from inferd.config.kinds.registry import KINDS
from inferd.config.kinds.whispercpp import WhisperCppSettings
from inferd.config.settings import Config
from inferd.memory.coordinator import MemoryCoordinator
from inferd.server.capacity import memory_budget
from inferd.server.loading.factory import BackendFactory
from inferd.server.loading.loader import ModelLoader
from inferd.server.telemetry.status import StatusBoard

FILES = (
    "m-00001-of-00002.gguf",
    "m-00002-of-00002.gguf",
    "p.gguf",
    "d-00001-of-00002.gguf",
    "d-00002-of-00002.gguf",
)


@pytest.fixture
def factory():
    config, board = Config(), StatusBoard()
    coordinator = MemoryCoordinator([], memory_budget(config), board.planned)
    return BackendFactory(config, board, coordinator, ModelLoader(), KINDS)


@pytest.mark.parametrize("changed", FILES)
def test_a_candidate_differs_if_any_file_of_it_does(factory, tmp_path, changed):
    for name in FILES:
        (tmp_path / name).write_bytes(b"GGUF")
    model, _, projector, draft, _ = (str(tmp_path / name) for name in FILES)
    settings = LlamaCppSettings(
        name="chat",
        model=model,
        mmproj=projector,
        speculation="draft",
        draft_model=draft,
    )
    [before] = factory.candidates(settings)
    [same] = factory.candidates(settings)
    assert before.is_same(same)
    with Path(tmp_path, changed).open("ab") as file:
        file.write(b"!")
    [after] = factory.candidates(settings)
    assert not before.is_same(after)


def test_a_draft_model_in_too_many_parts_is_left_to_the_worker(factory):
    draft = "/d-00001-of-09999.gguf"
    settings = LlamaCppSettings(
        name="chat", model="/m.gguf", speculation="draft", draft_model=draft
    )
    [found] = factory.candidates(settings)
    assert found.files == (None, None)


def test_a_speech_model_is_one_file(factory, tmp_path):
    path = tmp_path / "ears.bin"
    settings = WhisperCppSettings(name="ears", model=str(path))
    [before] = factory.candidates(settings)
    path.write_bytes(b"lmgg")
    [after] = factory.candidates(settings)
    assert not before.is_same(after)
