import pytest
from hypothesis import given, settings, strategies as st

from inferd.dialects.lark import Lark
from inferd.dialects.mistral import MISTRAL
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
ASKED = Turn("user", "Hi.")
HOW_TO_THINK = "# HOW YOU SHOULD THINK AND ANSWER\n"


@pytest.mark.parametrize(
    ("architecture", "template", "is_ours"),
    [
        ("llama", "[INST]{{ x }}[/INST]{% if tools %}[TOOL_CALLS]", True),
        ("", "[TOOL_CALLS][", True),
        ("llama", "<s>[INST] <<SYS>>", False),
        ("mistral3", "", True),
        ("mistral3", "<|im_start|>", False),
        ("llama", "", False),
    ],
)
def test_a_template_is_known_by_its_calls(architecture, template, is_ours):
    assert MISTRAL.recognises(architecture, template) is is_ours


@pytest.mark.slow
@given(turns=CONVERSATIONS, tools=TOOLS, thinks=st.booleans())
def test_any_conversation_has_a_prompt_that_holds_it(turns, tools, thinks):
    prompt = MISTRAL.render(turns, tools, thinks)
    assert prompt.count("[AVAILABLE_TOOLS]") == bool(tools)
    assert all(to_json(each.name) in prompt for each in tools)
    for turn in turns:
        assert turn.text in prompt
        for call in turn.calls:
            written = f"[TOOL_CALLS]{call.name}[ARGS]{arguments_of(call)}"
            assert written in prompt


@pytest.mark.slow
@given(READABLE)
def test_calls_are_read_as_they_are_written_in_prompts(calls):
    written = MISTRAL.render([calling(calls)], [], False)
    assert read(MISTRAL, written.removesuffix("</s>")) == calls


@pytest.mark.parametrize(
    ("turns", "prompt"),
    [
        ([ASKED], f"[SYSTEM_PROMPT]{HOW_TO_THINK}"),
        ([Turn("system", "Be brief."), ASKED], "[SYSTEM_PROMPT]Be brief.\n\n# HOW"),
    ],
)
def test_it_is_told_to_think_in_the_system_prompt(turns, prompt):
    written = MISTRAL.render(turns, [], True)
    assert written.startswith(prompt)
    assert written.endswith("[/SYSTEM_PROMPT][INST]Hi.[/INST]")
    assert written.count("[SYSTEM_PROMPT]") == 1
    assert HOW_TO_THINK not in MISTRAL.render(turns, [], False)


@settings(max_examples=50)
@given(st.text('{}[]",: \nARGS') | TEXTS)
def test_a_reader_takes_any_text(text):
    for read_any in filter(None, [region.read for region in MISTRAL.regions]):
        assert not read_any(text, WEATHER)
        assert not read_any(f"f[ARGS]{text}[ARGS]", WEATHER)


def test_a_grammar_matches_markers_as_the_tokens_that_they_are():
    lark = Lark({"[TOOL_CALLS]": 9, "[ARGS]": 32, "[CALL_ID]": 33})
    source = lark.source(MISTRAL.write_calls(lark, WEATHER))
    named, listed = '"get_weather" (<[33]> r0)? <[32]> r1', '<[9]> " "? "["'
    assert f"<[9]> ({named} |" in source
    assert listed in source
    assert "[ARGS]" not in source
    assert "[CALL_ID]" not in source


def test_tokens_that_calls_need_are_kept_and_alone_are_text():
    assert {"[ARGS]", "[CALL_ID]"} <= set(MISTRAL.markers)
