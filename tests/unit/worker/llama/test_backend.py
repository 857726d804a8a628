import msgspec
import pytest

from inferd.config import LlamaCppSettings
from inferd.job import GenerateJob, Sampling
from inferd.wire.requests import ChatMessage
from inferd.worker.backend import LoadError, RefusedError
from inferd.worker.llama.backend import LlamaBackend
from tests.model.tiny import write_tiny_model

pytestmark = pytest.mark.model

SETTINGS = LlamaCppSettings(name="tiny", n_threads=1)


def load(path, **settings):
    phases = []
    changed = msgspec.structs.replace(SETTINGS, model=str(path), **settings)
    backend = LlamaBackend(changed, n_slots=1)
    able, library = backend.load(lambda loading: phases.append(loading.phase))
    return backend, able, library, list(dict.fromkeys(phases))


def test_loading_tells_what_it_does_and_what_came_of_it(tiny_model):
    _, able, library, phases = load(tiny_model)
    assert phases == ["checking_local", "mmap", "kv_cache"]
    assert (able.generate, able.embed, able.model) == (True, False, "tiny-random")
    assert able.n_ctx == 512  # the model's, which is less than the default
    assert library.startswith("llama-cpp-python")


def test_a_hash_is_verified_when_there_is_one(tiny_model):
    with pytest.raises(LoadError, match="SHA-256"):
        load(tiny_model, sha256="0" * 64)


def test_a_smaller_context_may_be_asked_for(tiny_model):
    assert load(tiny_model, n_ctx=64)[1].n_ctx == 64


@pytest.mark.parametrize("n_gpu_layers", [-1, 3])
def test_an_accelerator_that_is_not_there_is_refused(tiny_model, n_gpu_layers):
    with pytest.raises(LoadError, match=f"n_gpu_layers = {n_gpu_layers}"):
        load(tiny_model, n_gpu_layers=n_gpu_layers)


def test_a_quantised_model_decodes_too(tmp_path):
    _, able, _, _ = load(write_tiny_model(tmp_path / "q8.gguf", kind="q8_0"))
    assert able.n_ctx == 512


def test_a_model_without_a_chat_template_is_refused(tmp_path):
    path = write_tiny_model(tmp_path / "bare.gguf", template=None)
    with pytest.raises(LoadError, match="no chat template"):
        load(path)


def test_a_template_that_does_not_compile_is_refused(tmp_path):
    path = write_tiny_model(tmp_path / "broken.gguf", template="{% for %}")
    with pytest.raises(LoadError, match="does not compile"):
        load(path)


def test_a_template_that_refuses_the_messages_refuses_the_job(tmp_path):
    template = "{{ raise_exception('no system messages') }}"
    path = write_tiny_model(tmp_path / "picky.gguf", template=template)
    backend = load(path)[0]
    job = GenerateJob(
        messages=[ChatMessage("user", "hello")],
        max_tokens=1,
        sampling=Sampling(temperature=0, top_p=1, top_k=0, seed=0),
    )
    with pytest.raises(RefusedError, match="no system messages"):
        backend.prepare(job)


def test_a_truncated_model_is_refused(tiny_model, tmp_path):
    path = tmp_path / "half.gguf"
    path.write_bytes(tiny_model.read_bytes()[:20_000])
    with pytest.raises(LoadError, match=r"cannot load .*half\.gguf"):
        load(path)


def test_the_text_that_begins_a_prompt_is_not_begun_twice(backend):
    assert backend._model.tokenize("<s>hello")[:2] != [1, 1]
    assert backend._model.tokenize("hello")[0] == 1


def test_markers_become_single_tokens(backend):
    assert 3 in backend._model.tokenize("<|im_start|>user")
