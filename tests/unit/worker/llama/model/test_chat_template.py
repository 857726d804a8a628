import datetime as dt

import pytest

from inferd.worker.backend import LoadError
from inferd.worker.llama.generate.sequence import PreparedPrompt
from inferd.worker.llama.model import chat_template
from tests.model.tiny import write_tiny_model
from tests.unit.worker.llama.running import job, load

pytestmark = pytest.mark.model


def load_with(directory, template):
    return load(write_tiny_model(directory / "tiny.gguf", template=template))[0]


def prompt_of(backend, asked):
    prepared = backend.prepare(asked)
    assert isinstance(prepared, PreparedPrompt)
    return prepared.tokens


def test_the_template_may_ask_for_the_date(tmp_path):
    template = "{{ messages[0].content }} {{ strftime_now('%Y') }}"
    backend = load_with(tmp_path, template)
    year = dt.datetime.now().astimezone().year
    assert prompt_of(backend, job("hello")) == backend._model.tokenize(f"hello {year}")


def test_a_model_without_a_chat_template_is_refused(tmp_path):
    with pytest.raises(LoadError, match="no chat template"):
        load_with(tmp_path, None)


def test_a_template_that_leaves_out_what_a_user_says_is_refused(tmp_path):
    with pytest.raises(LoadError, match="leaves out the user's messages"):
        load_with(tmp_path, "{{ bos_token }}")
    path = write_tiny_model(tmp_path / "pinned.gguf", template="{{ bos_token }}")
    backend, loaded = load(path, chat_template="gemma3")
    assert loaded.capabilities.dialect == "gemma3"
    text = "<start_of_turn>user\nhello<end_of_turn>\n<start_of_turn>model\n"
    assert prompt_of(backend, job("hello")) == backend._model.tokenize(text)


def test_a_template_that_takes_too_much_memory_to_be_tried_is_refused(
    tmp_path, monkeypatch
):
    template = "{% set wide = 'a' | center(2 ** 26) %}{{ messages[0].content }}"
    load_with(tmp_path, template)
    monkeypatch.setattr(chat_template, "TEMPLATE_MEMORY_BYTES", 2**24)
    with pytest.raises(LoadError, match="leaves out the user's messages"):
        load_with(tmp_path, template)


def test_a_model_without_a_template_may_be_said_to_be_of_a_family(tmp_path):
    path = write_tiny_model(tmp_path / "bare.gguf", template=None)
    backend, loaded = load(path, chat_template="qwen")
    assert loaded.capabilities.dialect == "qwen"
    text = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    empty_thought = "<think>\n\n</think>\n\n"
    tokenize = backend._model.tokenize
    assert prompt_of(backend, job("hello")) == tokenize(text + empty_thought)
    assert prompt_of(backend, job("hello", thinks=True)) == tokenize(text)


def test_the_generic_family_uses_the_models_own_template(tmp_path):
    template = "<|im_start|>{{ messages[0].content }}"
    path = write_tiny_model(tmp_path / "tiny.gguf", template=template)
    assert load(path)[1].capabilities.dialect == "chatml"
    backend, loaded = load(path, chat_template="generic")
    assert loaded.capabilities.dialect == "generic"
    written = backend._model.tokenize("<|im_start|>hello")
    assert prompt_of(backend, job("hello")) == written


@pytest.mark.parametrize(
    ("name", "family"), [("chatml", "chatml"), ("mistral-v7", "mistral")]
)
def test_a_template_may_be_the_name_of_a_family(tmp_path, name, family):
    path = write_tiny_model(tmp_path / "tiny.gguf", template=name)
    backend, loaded = load(path)
    assert loaded.capabilities.dialect == family
    turn = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    text = {"chatml": turn, "mistral": "[INST]hello[/INST]"}[family]
    assert prompt_of(backend, job("hello")) == backend._model.tokenize(text)


def test_an_unknown_template_name_is_refused_without_a_configured_family(tmp_path):
    with pytest.raises(LoadError, match="no chat template but the name 'vicuna'"):
        load_with(tmp_path, "vicuna")
    _, loaded = load(tmp_path / "tiny.gguf", chat_template="gemma3")
    assert loaded.capabilities.dialect == "gemma3"


def test_a_template_that_does_not_compile_is_refused(tmp_path):
    with pytest.raises(LoadError, match="does not compile"):
        load_with(tmp_path, "{% for %}")


def test_a_model_whose_template_always_takes_too_much_memory_is_refused(tmp_path):
    much = "{% set a = (messages[0].content ~ '') * 90000000 %}"
    with pytest.raises(LoadError, match="leaves out the user's messages"):
        load_with(tmp_path, much + "{{ messages[0].content }}")
