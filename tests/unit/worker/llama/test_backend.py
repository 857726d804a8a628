import threading

import pytest

from inferd.backend.capabilities import AcceleratorInfo
from inferd.config.kinds.llamacpp import LlamaCppSettings
from inferd.ipc.worker import Loaded, Loading
from inferd.worker.backend import LoadError
from inferd.worker.llama import generator
from inferd.worker.llama.backend import LlamaBackend
from inferd.worker.native.threads import ThreadGovernor
from tests.model.tiny import write_tiny_bert, write_tiny_model
from tests.unit.worker.llama.running import answer, job, load, vectors

pytestmark = pytest.mark.model


def load_and_listen(path) -> tuple[Loaded, list[tuple[str, str, int]]]:
    settings = LlamaCppSettings(name="tiny", model=str(path), n_threads=1)
    heard = []
    loaded = LlamaBackend(settings, n_slots=1).load(
        lambda told: (
            heard.append((told.phase, told.path, told.n_ctx))
            if isinstance(told, Loading)
            else None
        )
    )
    return loaded, list(dict.fromkeys(heard))


def test_loading_reports_its_phases_and_result(tiny_model):
    loaded, heard = load_and_listen(tiny_model)
    where = str(tiny_model)
    assert heard == [
        ("checking_local", where, 0),
        ("mmap", where, 0),
        ("kv_cache", "", 512),
    ]
    able = loaded.capabilities
    assert (able.generate, able.v2, able.embed, able.rerank) == (
        True,
        True,
        False,
        False,
    )
    assert (able.n_ctx, able.n_embd, able.model) == (512, 0, "tiny-random")
    assert (able.tools, able.structure, able.dialect) == (True, True, "chatml")
    assert (able.thinking, able.vision) == (False, False)
    assert loaded.library.startswith("llama-cpp-python")
    assert f"({able.cpu_variant}" in loaded.library


def test_loading_tells_which_control_tokens_are_parts_of_markers(tmp_path, monkeypatch):
    markers = ("<unk>", "<s>", "[ARGS]", "<|im_start|>", "<|im_end|>")
    monkeypatch.setattr("tests.model.tiny.SPECIALS", markers)
    path = write_tiny_model(tmp_path / "tiny.gguf", template=None)
    assert load(path, chat_template="chatml")[1].marker_tokens == frozenset()
    assert load(path, chat_template="mistral")[1].marker_tokens == {b"[ARGS]"}


def test_an_encoder_tells_its_context_and_its_name_too(tiny_bert):
    loaded, heard = load_and_listen(tiny_bert)
    assert heard[-1] == ("kv_cache", "", 512)
    assert loaded.capabilities.model == "tiny-random-bert"


def test_a_model_without_a_name_is_called_like_its_file(tmp_path, monkeypatch):
    monkeypatch.setattr("gguf.GGUFWriter.add_name", lambda *_: None)
    loaded, _ = load_and_listen(write_tiny_model(tmp_path / "nameless.gguf"))
    assert loaded.capabilities.model == "nameless"


def test_a_hash_is_verified_when_there_is_one(tiny_model):
    with pytest.raises(LoadError, match="SHA-256"):
        load(tiny_model, sha256="0" * 64)


def test_a_smaller_context_may_be_asked_for(tiny_model):
    backend, loaded = load(tiny_model, n_ctx=64)
    assert loaded.capabilities.n_ctx == 64
    usage = answer(backend, job(max_tokens=1000)).end.usage
    assert usage.prompt_tokens + usage.completion_tokens == 64


@pytest.mark.parametrize("n_gpu_layers", [-1, 3, "all"])
def test_an_accelerator_that_is_not_there_is_refused(tiny_model, n_gpu_layers):
    with pytest.raises(LoadError, match=f"n_gpu_layers = {n_gpu_layers}"):
        load(tiny_model, n_gpu_layers=n_gpu_layers)


def test_a_required_accelerator_that_is_not_there_is_refused(tiny_model):
    with pytest.raises(LoadError, match="require_accelerator: no accelerator"):
        load(tiny_model, n_gpu_layers="auto", require_accelerator=True)


def test_without_an_accelerator_no_layers_are_put_there(tiny_model):
    _, loaded = load(tiny_model, n_gpu_layers="auto")
    assert loaded.capabilities.accelerator == AcceleratorInfo()


def test_a_quantised_model_computes_too(tmp_path):
    writer, _ = load(write_tiny_model(tmp_path / "q8.gguf", kind="q8_0"))
    assert len(set(answer(writer, job(max_tokens=60)).text)) > 10
    encoder, _ = load(write_tiny_bert(tmp_path / "bert.gguf", kind="q8_0"))
    one, other = vectors(encoder, "hello", "world")
    assert one @ other < 0.99


def test_a_truncated_model_is_refused(tiny_model, tmp_path):
    path = tmp_path / "half.gguf"
    path.write_bytes(tiny_model.read_bytes()[:20_000])
    with pytest.raises(
        LoadError, match=r"half\.gguf: its tensor .* cannot be in a file of 20000 bytes"
    ):
        load(path)


def test_building_the_vocabulary_counts_as_a_busy_core(tiny_model, monkeypatch):
    is_made = threading.Event()
    used: list[int] = []
    monkeypatch.setattr(generator, "GrammarVocabulary", lambda *_: is_made.wait())
    backend, _ = load(tiny_model, n_threads=2)
    monkeypatch.setattr(backend, "_governor", ThreadGovernor(n_cores=2, max_threads=2))
    monkeypatch.setattr(backend._cpu_load, "measure", lambda: None)
    monkeypatch.setattr(backend._engine, "use_threads", used.append)
    answer(backend, job(max_tokens=1))
    is_made.set()
    assert isinstance(backend._engine, generator.Generator)
    backend._engine._grammars.get()
    answer(backend, job(max_tokens=1))
    assert (used[0], used[-1]) == (1, 2)
