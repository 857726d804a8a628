import json

import numpy as np
import pytest
from msgspec.structs import replace

from inferd.backend.job import RerankJob, Structure, ToolChoice, ToolSpec, Turn
from inferd.dialects.prompt import token_escape
from inferd.worker.backend import LoadError, RefusedError
from inferd.worker.llama import generator
from inferd.worker.llama.generate.sequence import PreparedPrompt
from tests.model.tiny import SPECIALS, write_tiny_model
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


def prompt_of(backend, asked):
    prepared = backend.prepare(asked)
    assert isinstance(prepared, PreparedPrompt)
    return prepared.tokens


def test_a_prompt_is_what_the_template_writes(tmp_path):
    backend = load_with(tmp_path, "{{ messages[0].content }}!")
    assert prompt_of(backend, job("hello")) == backend._model.tokenize("hello!")
    assert backend.prepare(job("hello")).prompt_tokens == len("hello!") + 1


def test_a_tool_name_that_calls_cannot_hold_is_refused(tmp_path):
    path = write_tiny_model(tmp_path / "pinned.gguf", template=None)
    backend, _ = load(path, chat_template="mistral")
    tools = (ToolSpec(name="a b", description="", input_schema="{}"),)
    with pytest.raises(RefusedError, match='mistral models cannot hold the name "a b"'):
        backend.prepare(job("hello", tools=tools))


CALLABLE = (ToolSpec(name="f", description="", input_schema='{"properties": {}}'),)


@pytest.mark.parametrize(
    ("family", "kind", "source", "begin"),
    [
        ("qwen", "regex", "(?s:.*)", "<tool_call>"),
        ("qwen", "regex", "yes|<[a-z_]+>[0-9]*", "<tool_call>"),
        ("qwen", "regex", "<[a-z]+>|[{].*[}]", None),
        ("qwen", "lark", 'start: "<tool_call>" /[0-9]+/', "<tool_call>"),
        ("mistral", "gbnf", 'root ::= "[" [A-Z_]+ "]"', "[TOOL_CALLS]"),
        ("mistral", "json_schema", '{"type": "array"}', None),
        ("llama3", "regex", r'\{"x": [0-9]+\}', '{"name"'),
        ("llama3", "gbnf", 'root ::= "{" [a-z]* "}"', None),
        ("llama3", "gbnf", 'root ::= "{" [a-z"]* "}"', '{"name"'),
        ("llama3", "lark", 'start: "{" /[a-z]*/ "}"', None),
        ("llama3", "json_schema", '{"properties": {"x": {}}}', None),
        ("llama3", "regex", "yes|no", None),
    ],
)
def test_a_text_that_may_begin_as_a_call_is_refused_where_there_is_a_choice(
    tmp_path, family, kind, source, begin
):
    path = write_tiny_model(tmp_path / "tiny.gguf", template=None)
    backend, _ = load(path, chat_template=family, n_ctx=1024)
    asked = job(structure=Structure(kind=kind, source=source), tools=CALLABLE)
    for choice in ("none", "required"):
        backend.prepare(replace(asked, tool_choice=ToolChoice(choice)))
    backend.prepare(replace(asked, tools=()))
    if begin is None:
        backend.prepare(asked)
        return
    with pytest.raises(RefusedError) as caught:
        backend.prepare(asked)
    assert f"may begin as a tool call does, with {json.dumps(begin)};" in str(
        caught.value
    )


def test_a_grammar_whose_text_would_end_the_answer_is_refused(backend):
    end = SPECIALS.index("<|im_end|>")
    for token in (f"<[{end}]>", "<|im_end|>"):
        lark = Structure(kind="lark", source=f'start: "a" {token} "b"')
        with pytest.raises(RefusedError, match="line 1: .* ends the answer$"):
            backend.prepare(job("hello", structure=lark))


def test_a_template_that_refuses_the_messages_refuses_the_job(tmp_path):
    refusal = "{% if content == 'hello' %}{{ raise_exception('no hello') }}{% endif %}"
    template = "{% set content = messages[0].content %}" + refusal + "{{ content }}"
    backend = load_with(tmp_path, template)
    with pytest.raises(RefusedError, match="no hello"):
        backend.prepare(job("hello"))
    assert backend.prepare(job("hi")).prompt_tokens == len("hi") + 1


def test_what_a_client_spells_is_text(backend):
    tool = ToolSpec(name="<s>", description="", input_schema="{}")
    asked = job("<|im_end|></s>", tools=(tool,))
    tokens = prompt_of(backend, asked)
    calm = prompt_of(backend, job("hello", tools=asked.tools))
    n_specials = len(SPECIALS)
    assert [each for each in tokens if each < n_specials] == [
        each for each in calm if each < n_specials
    ]
    text = b"".join(map(backend._model.piece, tokens)).decode()
    assert "<|im_end|></s>" in text
    assert '"name": "<s>"' in text


@pytest.mark.parametrize("choice", ["required", "named", "auto", "none"])
@pytest.mark.parametrize(
    ("structure", "said"),
    [
        (Structure(kind="json_schema", source='{"not": {}}'), "schema: not supported"),
        (Structure(kind="regex", source="("), "pattern: invalid regex"),
        (Structure(kind="gbnf", source=""), "grammar: not valid GBNF"),
    ],
)
def test_a_structure_that_does_not_compile_is_refused_beside_any_choice_of_tools(
    backend, choice, structure, said
):
    asked = job(
        tools=(ToolSpec(name="f", description="", input_schema="{}"),),
        tool_choice=ToolChoice(choice, "f"),
        structure=structure,
    )
    with pytest.raises(RefusedError, match=rf"^response_format\.{said}"):
        backend.prepare(asked)


@pytest.mark.parametrize("n_turns", [1, 127, 128, 129, 400])
def test_a_prompt_of_many_turns_is_that_of_one_piece(tmp_path, n_turns):
    path = write_tiny_model(tmp_path / "tiny.gguf")
    backend, _ = load(path, n_ctx=2**14)
    asked = replace(job(), turns=[Turn("user", "x ")] * n_turns)
    text = "<|im_start|>user\nx <|im_end|>\n" * n_turns + "<|im_start|>assistant\n"
    assert prompt_of(backend, asked) == backend._model.tokenize(text)


def test_too_many_special_tokens_in_a_clients_text_are_refused(backend, monkeypatch):
    monkeypatch.setattr(token_escape, "SPELLED_SPECIAL_TOKENS", 2)
    with pytest.raises(RefusedError, match="spells over 2 special tokens"):
        backend.prepare(job("<s></s><unk>"))


def test_a_template_that_takes_too_much_memory_refuses_the_job(tmp_path, monkeypatch):
    monkeypatch.setattr(generator, "TEMPLATE_MEMORY_BYTES", 10**8)
    backend = load_with(
        tmp_path,
        "{% if messages[0].content == 'much' %}"
        "{% set a = [0] * 30000000 %}{% set b = a ~ a %}{% endif %}"
        "{{ messages[0].content }}",
    )
    with pytest.raises(RefusedError, match="MemoryError"):
        backend.prepare(job("much"))
    assert backend.prepare(job("hi")).prompt_tokens == len("hi") + 1


def test_a_prompt_without_a_token_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("gguf.GGUFWriter.add_add_bos_token", no_bos)
    backend = load_with(tmp_path, "{{ messages[0].content }}")
    with pytest.raises(RefusedError, match="the prompt is empty"):
        backend.prepare(job(""))


def no_bos(writer, *, value):
    writer.add_bool("tokenizer.ggml.add_bos_token", not value)


@pytest.mark.parametrize(
    "other", [embed_job("hello"), RerankJob(query="q", documents=["d"])]
)
def test_a_text_model_refuses_other_jobs(backend, other):
    with pytest.raises(RefusedError, match="generates text and nothing else"):
        backend.prepare(other)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_model_that_gives_no_numbers_is_not_loaded(tmp_path, value):
    path = write_tiny_model(tmp_path / "broken.gguf")
    change_rows(path, "output.weight", -1, value)
    with pytest.raises(LoadError, match="self-test failed: logits are not finite"):
        load(path)


def test_the_smallest_context_is_enough_for_the_self_test(tmp_path):
    path = write_tiny_model(
        tmp_path / "tiny.gguf", template="{{ messages[0].content }}"
    )
    backend, loaded = load(path, n_ctx=8)
    assert loaded.capabilities.n_ctx == 8
    usage = answer(backend, job("x", max_tokens=100)).end.usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (2, 6)
