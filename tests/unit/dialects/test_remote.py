"""Calls that a remote's server leaves in its text, by the parser of all answers."""

import json

from inferd.backend.events import MalformedToolCall, Text, ToolUse
from inferd.backend.job import ToolSpec
from inferd.dialects.families.remote import REMOTE
from inferd.output.parser import BlockParser, merge_deltas

TOOL = ToolSpec(name="add", description="", input_schema='{"type":"object"}')
IN_STRING = {"a": "</tool_call> <function=x> {"}
LEAKED = {
    "JSON between markers": (
        f"<tool_call>\n{json.dumps({'name': 'add', 'arguments': IN_STRING})}\n</tool_call>"
    ),
    "tags between markers": (
        "<tool_call>\n<function=add>\n<parameter=a>\n"
        f"{json.dumps(IN_STRING)}\n</parameter>\n</function>\n</tool_call>"
    ),
    "tags without the first marker": (
        "<function=add>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>"
    ),
    "JSON alone": '{"name": "add", "arguments": {"a": 1}}',
}
INPUTS = ([IN_STRING], [{"a": IN_STRING}], [{"a": 1}], [{"a": 1}])


def parse(text: str, tools=(TOOL,), size: int = 10**6):
    parser = BlockParser(REMOTE.regions, tools, calls_tools=bool(tools))
    parts = [text[at : at + size] for at in range(0, len(text), size)]
    return merge_deltas(
        [*(block for part in parts for block in parser.feed(part)), *parser.finish()]
    )


def test_each_form_of_a_leaked_call_is_one_however_it_is_cut():
    for (form, text), expected in zip(LEAKED.items(), INPUTS, strict=True):
        for size in (1, 3, 10**6):
            found = parse(text, size=size)
            calls = [each for each in found if isinstance(each, ToolUse)]
            assert [each.input for each in calls] == expected, (form, size, found)
            assert all(each.name == "add" for each in calls)


def test_what_only_resembles_a_call_stays_text():
    for text in ('{"name": "Ada", "age": 3}', 'see {"name": "add", "arguments": {}}'):
        assert parse(text) == [Text(text)]
    assert parse(LEAKED["JSON alone"], tools=()) == [Text(LEAKED["JSON alone"])]
    [warning, text] = parse("<tool_call>\n<function=add>\nno\n</tool_call>")
    assert isinstance(warning, MalformedToolCall)
    assert isinstance(text, Text)
