import pytest

from inferd.backend.events import Text, Thinking
from inferd.backend.job import Turn
from inferd.dialects.families.mistral import MISTRAL
from inferd.dialects.lark import LarkBuilder
from inferd.output.parser import BlockParser
from tests.cases import each_case
from tests.unit.dialects.cases import tools_named

WEATHER = tools_named(["get_weather", "get_time"])
ASKED = Turn("user", "Hi.")
HOW_TO_THINK = "# HOW YOU SHOULD THINK AND ANSWER\n"


@each_case(
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


def test_a_grammar_matches_markers_as_the_tokens_that_they_are():
    lark = LarkBuilder({"[TOOL_CALLS]": 9, "[ARGS]": 32, "[CALL_ID]": 33})
    source = lark.source(MISTRAL.write_calls(lark, WEATHER))
    named, listed = '"get_weather" (<[33]> r0)? <[32]> r1', '<[9]> " "? "["'
    assert f"<[9]> ({named} |" in source
    assert listed in source
    assert "[ARGS]" not in source
    assert "[CALL_ID]" not in source


def test_tokens_that_calls_need_are_kept_and_alone_are_text():
    assert {"[ARGS]", "[CALL_ID]"} <= set(MISTRAL.markers)


@each_case(
    ("end", "marker"),
    [("[THINK]", "[THINK]"), ("<think>\n", "<think>"), ("[/THINK]", ""), ("", "")],
)
def test_a_prompt_may_open_a_thought_of_either_kind(end, marker):
    assert MISTRAL.open_thought(f"[INST]Hi[/INST]{end}") == marker


def test_an_open_thought_is_read_to_its_own_end():
    for begin, end in (("[THINK]", "[/THINK]"), ("<think>", "</think>\n\n")):
        parser = BlockParser(MISTRAL.regions, open_thought=begin)
        assert parser.feed(f"hm{end}Hi") == [Thinking("hm"), Text("Hi")]
