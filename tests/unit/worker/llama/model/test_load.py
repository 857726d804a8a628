from typing import Any

import pytest

from inferd.config.kinds.llamacpp import LlamaCppSettings
from inferd.models.gguf_header.header import GgufHeader
from inferd.worker.backend import LoadError
from inferd.worker.llama.gguf.files import open_files
from inferd.worker.llama.library.binding import llama, load_model
from inferd.worker.llama.memory.predict import predict
from inferd.worker.llama.model import load
from inferd.worker.llama.model.load import LoadExtent
from inferd.worker.llama.model.weights import LlamaModel

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("loaded")]  # the library

FILES = ["tiny_model", "tiny_mamba", "tiny_bert", "tiny_ranker"]


@pytest.fixture
def settings(request) -> LlamaCppSettings:
    path = request.getfixturevalue(request.param)
    return LlamaCppSettings(name="tiny", model=str(path))


def opened(settings: LlamaCppSettings, extent: LoadExtent = "full") -> LlamaModel:
    return LlamaModel(open_files(settings).model, settings, lambda: None, extent)


def words(model: LlamaModel) -> int:
    return int(llama.llama_vocab_type(model.vocab))


@pytest.mark.parametrize("settings", FILES, indirect=True)
def test_without_words_a_model_is_as_large_as_with_them(settings):
    whole, dry, wordless = (
        opened(settings, extent) for extent in ("full", "no_weights", "no_vocabulary")
    )
    for model in (dry, wordless):
        for name in ("n_vocab", "n_bytes", "n_embd", "n_ctx_train", "use", "n_layers"):
            assert getattr(model, name) == getattr(whole, name), name
        model.close()
    assert words(wordless) == llama.LLAMA_VOCAB_TYPE_NONE
    assert words(dry) == words(whole) != llama.LLAMA_VOCAB_TYPE_NONE
    assert wordless.n_skipped_texts >= whole.n_vocab > 0
    assert (whole.n_skipped_texts, dry.n_skipped_texts) == (0, 0)


@pytest.mark.parametrize("settings", FILES, indirect=True)
def test_without_words_a_model_demands_the_same(settings, monkeypatch):
    wordless = predict(open_files(settings), settings, 2, lambda: None).demand
    monkeypatch.setattr(load, "_without_vocabulary", lambda _: None)
    dry = predict(open_files(settings), settings, 2, lambda: None).demand
    for name in ("n_ctx", "has_slots", "weights", "cache", "compute", "store"):
        assert getattr(wordless, name) == getattr(dry, name), name


@pytest.mark.parametrize("settings", ["tiny_model"], indirect=True)
def test_where_the_library_cannot_do_without_words_they_are_loaded(
    settings, monkeypatch
):

    def load_with_words(paths: list[bytes], params: Any) -> int | None:
        return None if params.kv_overrides else load_model(paths, params)

    monkeypatch.setattr("inferd.worker.llama.model.load.load_model", load_with_words)
    model = opened(settings, "no_vocabulary")
    assert model.n_skipped_texts == 0
    assert words(model) != llama.LLAMA_VOCAB_TYPE_NONE


@pytest.mark.parametrize(
    "header",
    [GgufHeader(n_tensors=1, architecture=b"llama"), GgufHeader(1, n_tokens=5)],
)
def test_a_file_that_says_too_little_is_loaded_with_its_words(header):
    assert load._without_vocabulary(header) is None


def test_a_file_that_the_library_refuses_is_named(monkeypatch, tiny_model):
    monkeypatch.setattr("inferd.worker.llama.model.load.load_model", lambda *_: None)
    settings = LlamaCppSettings(name="tiny", model=str(tiny_model))
    for extent in ("full", "no_weights", "no_vocabulary"):
        with pytest.raises(LoadError, match=r"tiny\.gguf: llama.cpp cannot load it"):
            opened(settings, extent)


def test_loading_reports_signs_of_life(tiny_model):
    settings = LlamaCppSettings(name="tiny", model=str(tiny_model))
    signs: list[None] = []
    LlamaModel(open_files(settings).model, settings, lambda: signs.append(None))
    assert signs
