import pytest
from hypothesis import given, settings, strategies as st

from inferd.dialects.deepseek import DEEPSEEK
from inferd.dialects.lark import Lark
from inferd.dialects.turns import arguments_of
from inferd.job import ToolCall, Turn
from tests.unit.dialects.cases import tools_named
from tests.unit.dialects.conversations import (
    CONVERSATIONS,
    READABLE,
    TEXTS,
    TOOLS,
    calling,
    read,
)

# ruff: noqa: RUF001  # their bars are no ASCII
WEATHER = tools_named(["get_weather", "get_time"])
ASKED = Turn("user", "Hi.")
CALL = ToolCall(id="tc-0", name="get_weather", arguments='{"city":"Bern"}')
RESULT = Turn("tool", "9 °C", call_id="tc-0", name="get_weather")
WRITTEN = (
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>"
    '{"city": "Bern"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
)


@pytest.mark.parametrize(
    ("template", "is_ours"),
    [
        ("{{ '<｜User｜>' + text }}{{ '<｜tool▁sep｜>' + name }}", True),
        ("<｜User｜>", False),
        ("<｜tool▁sep｜>", False),
        ("<｜User｜><｜tool▁sep｜>{% set dsml_token = 1 %}", False),
        ("", False),
    ],
)
def test_a_template_is_known_by_its_users_and_its_calls(template, is_ours):
    assert DEEPSEEK.recognises("deepseek2", template) is is_ours
    assert DEEPSEEK.recognises("qwen2", template) is is_ours


@pytest.mark.slow
@given(turns=CONVERSATIONS, tools=TOOLS, thinks=st.booleans())
def test_any_conversation_has_a_prompt_that_holds_it(turns, tools, thinks):
    prompt = DEEPSEEK.render(turns, tools, thinks)
    goes_on = [turn.role for turn in turns if turn.role != "system"][-1:] == ["tool"]
    assert DEEPSEEK.opens_thought(prompt) is (thinks and not goes_on)
    assert prompt.count("## Tools\n") == bool(tools)
    assert all(f"### {each.name}\n" in prompt for each in tools)
    for turn in turns:
        assert turn.text in prompt
        assert all(arguments_of(call) in prompt for call in turn.calls)


@pytest.mark.slow
@given(READABLE)
def test_calls_are_read_as_they_are_written_in_prompts(calls):
    assert DEEPSEEK.in_plain_turns is not None
    (turn,) = DEEPSEEK.in_plain_turns([calling(calls)], [])
    assert read(DEEPSEEK, turn.text) == calls
    assert f"</think>{turn.text}" in DEEPSEEK.render([calling(calls)], [], False)


def test_templates_are_told_of_tools_and_calls_in_text_and_write_results_themselves():
    assert DEEPSEEK.in_plain_turns is not None
    said = Turn("assistant", "So.", calls=(CALL,))
    later = Turn("system", "Be polite.")
    turns = [Turn("system", "Be brief."), ASKED, said, RESULT, later]
    told, *rest = DEEPSEEK.in_plain_turns(turns, WEATHER)
    assert told.role == "system"
    assert told.text.startswith("Be brief.\n\nBe polite.\n\n## Tools\n")
    assert "### get_time\nDescription: Tell the time.\n\nParameters: {" in told.text
    assert rest == [ASKED, Turn("assistant", f"So.{WRITTEN}"), RESULT]
    assert DEEPSEEK.in_plain_turns([ASKED], []) == [ASKED]


@settings(max_examples=50)
@given(st.text('{}[]",: \n`') | TEXTS)
def test_a_reader_takes_any_text(text):
    for read_any in filter(None, [region.read for region in DEEPSEEK.regions]):
        assert not read_any(text, WEATHER)
        assert not read_any(f"function<｜tool▁sep｜>{text}\n```json\n`", WEATHER)


def test_a_grammar_allows_calls_of_either_version_and_no_mixture():
    lark = Lark({"<｜tool▁calls▁begin｜>": 1, "<｜tool▁sep｜>": 2})
    source = lark.source(DEEPSEEK.write_calls(lark, WEATHER[:1]))
    assert source.startswith("start: <[1]> (r1")
    assert r'r1: ("<｜tool▁call▁begin｜>get_weather" <[2]> r0 ' in source
    assert r'"<｜tool▁call▁begin｜>function" <[2]> "get_weather\n```json\n" ' in source


def test_the_token_that_calls_need_is_kept():
    assert "<｜tool▁sep｜>" in DEEPSEEK.markers


def test_a_thought_that_a_template_has_opened_can_be_closed():
    prompt = "<｜User｜>Hi.<｜Assistant｜><think>\n"
    assert DEEPSEEK.opens_thought(prompt)
    assert prompt + DEEPSEEK.no_thought == f"{prompt}\n</think>\n\n"
