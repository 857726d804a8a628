import datetime as dt

import numpy as np
import pytest

from inferd.job import RerankJob
from inferd.worker.backend import LoadError, RefusedError
from tests.model.tiny import write_tiny_model
from tests.unit.worker.llama.running import (
    answer,
    change_rows,
    embed_job,
    job,
    load,
)

pytestmark = pytest.mark.model


def load_with(directory, template):
    return load(write_tiny_model(directory / "tiny.gguf", template=template))[0]


def test_a_prompt_is_what_the_template_writes(tmp_path):
    backend = load_with(tmp_path, "{{ messages[0].content }}!")
    prepared = backend.prepare(job("hello"))
    assert prepared.tokens == backend._model.tokenize("hello!")
    assert prepared.prompt_tokens == len("hello!") + 1


def test_the_template_may_ask_for_the_date(tmp_path):
    backend = load_with(tmp_path, "{{ strftime_now('%Y') }}")
    year = dt.datetime.now().astimezone().year
    assert backend._model.tokenize(str(year)) == backend.prepare(job()).tokens


def test_a_model_without_a_chat_template_is_refused(tmp_path):
    with pytest.raises(LoadError, match="no chat template"):
        load_with(tmp_path, None)


def test_a_template_that_does_not_compile_is_refused(tmp_path):
    with pytest.raises(LoadError, match="does not compile"):
        load_with(tmp_path, "{% for %}")


def test_a_template_that_refuses_the_messages_refuses_the_job(tmp_path):
    backend = load_with(tmp_path, "{{ raise_exception('no system messages') }}")
    with pytest.raises(RefusedError, match="no system messages"):
        backend.prepare(job())


def test_a_prompt_without_a_token_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("gguf.GGUFWriter.add_add_bos_token", no_bos)
    backend = load_with(tmp_path, "{{ '' }}{# no word #}")
    with pytest.raises(RefusedError, match="the prompt is empty"):
        backend.prepare(job())


def no_bos(writer, *, value):
    writer.add_bool("tokenizer.ggml.add_bos_token", not value)


@pytest.mark.parametrize(
    "other", [embed_job("hello"), RerankJob(query="q", documents=["d"])]
)
def test_a_model_that_writes_does_nothing_else(backend, other):
    with pytest.raises(RefusedError, match="writes text and nothing else"):
        backend.prepare(other)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_model_that_gives_no_numbers_is_not_loaded(tmp_path, value):
    path = write_tiny_model(tmp_path / "broken.gguf")
    change_rows(path, "output.weight", -1, value)
    with pytest.raises(LoadError, match="self-test failed: logits are not finite"):
        load(path)


def test_the_smallest_context_is_enough_for_the_self_test(tmp_path):
    path = write_tiny_model(tmp_path / "tiny.gguf", template="x")
    backend, loaded = load(path, n_ctx=8)
    assert loaded.capabilities.n_ctx == 8
    usage = answer(backend, job(max_tokens=100)).end.usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (2, 6)
