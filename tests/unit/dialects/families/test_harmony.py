import pytest

from inferd.backend.job import Turn
from inferd.dialects.dialect import ParsedCall
from inferd.dialects.families.harmony import HARMONY
from inferd.dialects.lark import LarkBuilder
from tests.cases import each_case
from tests.unit.dialects.cases import tools_named
from tests.unit.dialects.conversations import (
    calling,
)

WEATHER = tools_named(["get_weather", "get_time"])
ASSISTANT = "<|start|>assistant"


@each_case(
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


@pytest.mark.parametrize(
    ("turn", "channel"),
    [
        (Turn("assistant", "Hello."), "final"),
        (calling([ParsedCall("f", {})]), "commentary"),
    ],
)
def test_text_before_a_call_is_on_another_channel_than_an_answer(turn, channel):
    said = Turn("assistant", "Hello.", calls=turn.calls)
    prompt = HARMONY.render([said], [], False)
    assert f"{ASSISTANT}<|channel|>{channel}<|message|>Hello.<|end|>" in prompt


def test_a_grammar_knows_both_places_of_a_recipient():
    lark = LarkBuilder(
        {"<|channel|>": 5, "<|message|>": 8, "<|start|>": 6, "<|constrain|>": 3}
    )
    source = lark.source(HARMONY.write_calls(lark, WEATHER[:1]))
    before = '" to=functions." "get_weather" <[5]> "commentary json" <[8]>'
    after = '<[5]> "commentary to=functions." "get_weather " <[3]> "json" <[8]>'
    assert f'start: (<[6]> "assistant")? (({before} | {after}) r0)\n' in source
