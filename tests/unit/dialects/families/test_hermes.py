import json

from inferd.backend.job import PastCall, ToolSpec, Turn
from inferd.dialects.families.hermes import tools_as_text, write_calls
from inferd.dialects.lark import LarkBuilder

TOOL = ToolSpec(name="f", description="Do {it}.", input_schema='{"type":"object"}')
CALL = PastCall(id="tc-0", name='"f"', arguments='{"a":"é"}')
USER = Turn("user", "Hi.")
CALL_TEXT = '<tool_call>\n{"name": "\\"f\\"", "arguments": {"a": "é"}}\n</tool_call>'


def test_turns_without_tools_stay_as_they_are():
    turns = [Turn("system", "a"), USER, Turn("assistant", "b"), Turn("system", "")]
    assert tools_as_text(turns, []) == turns


def test_the_first_system_turn_tells_of_the_tools():
    (first, *rest) = tools_as_text([Turn("system", "Be kind."), USER], [TOOL, TOOL])
    assert rest == [USER]
    assert first.text.startswith("Be kind.\n\n# Tools\n")
    function = {
        "name": "f",
        "description": "Do {it}.",
        "parameters": {"type": "object"},
    }
    told = json.dumps({"type": "function", "function": function})
    assert f"<tools>\n{told}\n{told}\n</tools>" in first.text


def test_without_a_system_turn_there_is_one_for_the_tools():
    for turns in ([], [USER], [Turn("system", "")], [USER, Turn("system", "Late.")]):
        first = tools_as_text(turns, [TOOL])[0]
        assert first.role == "system"
        assert first.text.startswith("# Tools\n")


def test_calls_are_text_of_the_assistant_and_results_of_the_user():
    turns = [
        Turn("assistant", "", calls=(CALL,)),
        Turn("tool", "1", call_id="tc-0", name="f"),
        Turn("tool", "2"),
        Turn("assistant", "Wait.", calls=(CALL, CALL)),
    ]
    response = "<tool_response>\n{}\n</tool_response>"
    assert tools_as_text(turns, []) == [
        Turn("assistant", CALL_TEXT),
        Turn("user", f"{response.format(1)}\n{response.format(2)}"),
        Turn("assistant", f"Wait.\n{CALL_TEXT}\n{CALL_TEXT}"),
    ]


def test_a_grammar_has_markers_around_each_call():
    tokens = {"<tool_call>": 7, "</tool_call>": 8}
    source = LarkBuilder(tokens).source(
        write_calls(lark := LarkBuilder(tokens), [TOOL])
    )
    assert source == 'start: r1 ("\\n" r1){0,127}\n'
    assert '\nr1: <[7]> "\\n" ("{" "\\"name\\"" ": " ' in lark.source("x")
    assert lark.source("x").endswith(' r0 "}") "\\n" <[8]>\n')
