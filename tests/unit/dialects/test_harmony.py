import pytest
from hypothesis import given, settings, strategies as st

from inferd.dialects.dialect import Call
from inferd.dialects.harmony import HARMONY
from inferd.dialects.lark import Lark
from inferd.dialects.turns import arguments_of, to_json
from inferd.job import Turn
from tests.unit.dialects.cases import tools_named
from tests.unit.dialects.conversations import (
    CONVERSATIONS,
    READABLE,
    TEXTS,
    TOOLS,
    calling,
    read,
)

WEATHER = tools_named(["get_weather", "get_time"])
ASSISTANT = "<|start|>assistant"


@pytest.mark.parametrize(
    ("architecture", "template", "is_ours"),
    [
        ("gpt-oss", "{{ '<|start|>user<|message|>' }}{{ '<|channel|>final' }}", True),
        ("", "<|start|><|channel|>", True),
        ("gpt-oss", "", True),
        ("gpt-oss", "<|im_start|><|channel|>", False),
        ("llama", "", False),
    ],
)
def test_a_template_is_known_by_its_messages(architecture, template, is_ours):
    assert HARMONY.recognises(architecture, template) is is_ours


@pytest.mark.slow
@given(turns=CONVERSATIONS, tools=TOOLS, thinks=st.booleans())
def test_any_conversation_has_a_prompt_that_holds_it(turns, tools, thinks):
    prompt = HARMONY.render(turns, tools, thinks)
    assert prompt.endswith(ASSISTANT)
    assert f"Reasoning: {'medium' if thinks else 'low'}\n" in prompt
    assert prompt.count("namespace functions {") == bool(tools)
    assert all(f"type {each.name} = (" in prompt for each in tools)
    for turn in turns:
        text = to_json(turn.text) if turn.role == "tool" else turn.text
        assert text in prompt
        assert all(arguments_of(call) in prompt for call in turn.calls)


@pytest.mark.slow
@given(READABLE)
def test_calls_are_read_as_they_are_written_in_prompts(calls):
    prompt = HARMONY.render([calling(calls)], [], False)
    _, _, written = prompt.partition("<|end|>" + ASSISTANT)
    answer = written.removesuffix(ASSISTANT)
    assert read(HARMONY, answer) == read(HARMONY, ASSISTANT + answer) == calls


@pytest.mark.parametrize(
    ("turn", "channel"),
    [
        (Turn("assistant", "Hello."), "final"),
        (calling([Call("f", {})]), "commentary"),
    ],
)
def test_text_before_a_call_is_on_another_channel_than_an_answer(turn, channel):
    said = Turn("assistant", "Hello.", calls=turn.calls)
    prompt = HARMONY.render([said], [], False)
    assert f"{ASSISTANT}<|channel|>{channel}<|message|>Hello.<|end|>" in prompt


@settings(max_examples=50)
@given(st.text('{}[]",: \n<|message>') | TEXTS)
def test_a_reader_takes_any_text(text):
    for read_any in filter(None, [region.read for region in HARMONY.regions]):
        assert read_any(text, WEATHER) is None
        assert read_any(f"f<|message|>{text} 1", WEATHER) is None


def test_a_grammar_knows_both_places_of_a_recipient():
    lark = Lark(
        {"<|channel|>": 5, "<|message|>": 8, "<|start|>": 6, "<|constrain|>": 3}
    )
    source = lark.source(HARMONY.write_calls(lark, WEATHER[:1]))
    before = '" to=functions.get_weather" <[5]> "commentary json" <[8]>'
    after = '<[5]> "commentary to=functions.get_weather " <[3]> "json" <[8]>'
    assert f'start: (<[6]> "assistant")? (({before} | {after}) r0)\n' in source
