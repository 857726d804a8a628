import msgspec
import pytest

from inferd.backend.job import GenerateJob, Sampling, Turn
from inferd.dialects.prompt.template import TemplateError
from inferd.worker.llama.prepare.model_info import (
    PromptFormat,
    TokenTable,
    decode_prompt_format,
    decode_token_table,
    encode_model_info,
    prompts_of,
)

FACTS = PromptFormat(
    template="{{ bos_token }}{{ messages[0].content }}{{ strftime_now('%%') }}",
    dialect="qwen",
    special={"bos_token": "<s>"},
    always=["<s>"],
    where_used=["<tool_call>"],
)
JOB = GenerateJob(
    turns=[Turn("user", "hi <s>")],
    max_tokens=3,
    sampling=Sampling(temperature=0, top_p=1, top_k=0, seed=0),
)


def test_facts_and_words_come_out_as_they_went_in():
    words = TokenTable(
        token_bytes=[b"\xff", b"a"], special=[0], ends=[0], call_prefixes={"<": [1]}
    )
    assert decode_prompt_format(encode_model_info(FACTS)) == FACTS
    assert decode_token_table(encode_model_info(words)) == words


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x80"])
def test_what_is_neither_is_refused(data):
    with pytest.raises(msgspec.DecodeError):
        decode_prompt_format(data)


def test_prompts_are_written_by_them():
    rendered = prompts_of(decode_prompt_format(encode_model_info(FACTS))).render(JOB)
    assert rendered.text == "<s>hi <s>%"
    assert len(rendered.pieces) == 2  # what a client spells is no token


def test_a_template_that_does_not_compile_is_refused():
    with pytest.raises(TemplateError):
        prompts_of(msgspec.structs.replace(FACTS, template="{% if %}"))


def test_without_a_template_the_family_writes():
    prompts = prompts_of(msgspec.structs.replace(FACTS, template=None))
    prompts.warm_up()
    assert "<|im_start|>user\nhi" in prompts.render(JOB).text
