"""All dialects, those of other files among them."""

from itertools import permutations

import pytest
from hypothesis import given, settings, strategies as st

from inferd.dialects.dialect import Call, Dialect
from inferd.dialects.lark import Lark
from inferd.dialects.registry import DIALECTS, choose
from inferd.job import Tool, ToolCall, Turn

CHATML = "{{ '<|im_start|>' + message['role'] }}"
FINGERPRINTS = {
    "harmony": "<|start|>assistant<|channel|>final<|message|>",
    "gemma4": "'<|turn>' + role; '<|tool_call>call:'",
    "gemma3": "'<start_of_turn>' + role",
    "deepseek": "'<｜User｜>'; '<｜tool▁sep｜>'",  # noqa: RUF001  # its own bars
    "granite": "'<|start_of_role|>' + role",
    "mistral": "'[AVAILABLE_TOOLS]'; '[INST]'; '[TOOL_CALLS]'",
    "llama3": "'<|start_header_id|>' + role; 'Environment: ipython'",
    "qwen3-coder": f"{CHATML} <tool_call>\n<function=f>\n<parameter=a>",
    "qwen": f"{CHATML} <think> <tool_call> <args-json-object>",
    "chatml": CHATML,
    "generic": "{{ message['content'] }}",
}
"""As little of a template as tells the family."""

WORDS = st.sampled_from(["", "a", "é b\n", '"', "\\", "</", "{}", "%s", "<tool_call>"])
JSON = st.sampled_from(
    [
        *(
            "",
            "{",
            "NaN",
            "1e999",
            "null",
            "true",
            '"a"',
            "[1]",
            '"\\ud800"',
            "[" * 2000,
        ),
        '{"a": [1, {"b": null}], "é\\n": "x"}',
        '{"' + "a" * 99 + '": {}}',
        '{"type": "object", "properties": {"a": {"type": ["string", "null"]}}}',
        '{"properties": {"a": true, "}": {"type": 1}}, "required": ["a", 1]}',
        '{"properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {"$ref": "#"}}}',
        '{"properties": [], "required": {}, "enum": [], "anyOf": [1]}',
        '{"items":' * 900 + "1" + "}" * 900,
    ]
)
CALLS = st.builds(ToolCall, id=WORDS, name=WORDS, arguments=JSON)
SAID = st.builds(Turn, st.just("assistant"), WORDS, st.tuples() | st.tuples(CALLS))
ROLES = st.sampled_from(["system", "user", "tool"])
TURNS = st.lists(SAID | st.builds(Turn, ROLES, WORDS, call_id=WORDS, name=WORDS))
TOOLS = st.builds(Tool, name=WORDS, description=WORDS, input_schema=JSON)

each_dialect = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=[*DIALECTS])


def test_each_family_has_a_name_of_its_own():
    assert set(DIALECTS) == set(FINGERPRINTS)
    assert [each.name for each in DIALECTS.values()] == [*DIALECTS]


@pytest.mark.parametrize(("name", "template"), FINGERPRINTS.items())
def test_a_model_is_of_one_family(name, template):
    known = [each for each in DIALECTS if DIALECTS[each].recognises("llama", template)]
    assert known == [name] * (name != "generic")
    assert choose("llama", template) is DIALECTS[name]


@pytest.mark.parametrize(
    ("architecture", "name"),
    [
        ("gemma3", "gemma3"),
        ("gemma4", "gemma4"),
        ("qwen2", "chatml"),
        ("qwen3moe", "qwen"),
        ("qwen35", "qwen3-coder"),
        ("llama", "generic"),
        ("", "generic"),
    ],
)
def test_without_a_template_the_architecture_may_tell(architecture, name):
    assert choose(architecture, "").name == name


@each_dialect
def test_no_marker_is_the_beginning_of_another_regions(dialect):
    for one, other in permutations(dialect.regions, 2):
        for begin in one.begins:
            assert not any(each.startswith(begin) for each in other.begins)


@each_dialect
@settings(max_examples=25)
@given(turns=TURNS, tools=st.lists(TOOLS, max_size=2), thinks=st.booleans())
def test_any_turns_and_tools_can_be_said(dialect: Dialect, turns, tools, thinks):
    prompt = dialect.render(turns, tools, thinks)
    prompt.encode()
    if dialect.in_plain_turns is not None:
        plain = dialect.in_plain_turns(turns, tools)
        assert not any(turn.calls for turn in plain)


@each_dialect
@settings(max_examples=20)
@given(tools=st.lists(TOOLS, min_size=1, max_size=2))
def test_a_grammar_can_be_written_for_any_tools(dialect: Dialect, tools):
    lark = Lark({marker: 7 for marker in dialect.markers if marker})
    source = lark.source(dialect.write_calls(lark, tools))
    assert source.startswith("start: ")
    assert all(": " in line for line in source.splitlines())


@each_dialect
@settings(max_examples=20)
@given(tools=st.lists(TOOLS, max_size=2), text=WORDS | JSON)
def test_whatever_stands_between_markers_is_calls_or_none(dialect, tools, text):
    for region in dialect.regions:
        if region.read is not None:
            calls = region.read(text, tools)
            assert calls is None or all(isinstance(call, Call) for call in calls)
