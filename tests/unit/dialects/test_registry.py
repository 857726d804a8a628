"""All dialects, those of other files among them."""

import json
import re
from itertools import permutations

import jsonschema_rs
import pytest
from hypothesis import given, settings, strategies as st

from inferd.backend.events import MalformedToolCall
from inferd.backend.job import PastCall, ToolSpec, Turn
from inferd.dialects.dialect import Dialect, ParsedCall
from inferd.dialects.lark import LarkBuilder
from inferd.dialects.registry import DIALECTS, detect_dialect, dialect_of
from inferd.dialects.schema.subset import UnsupportedSchemaError
from tests.cases import each_case
from tests.model.spellings import FAMILIES, WAYS, Spoken
from tests.unit.dialects.conversations import (
    CONVERSATIONS,
    MARKERS,
    READABLE,
    TOOLS as CONVERSED_TOOLS,
    read,
)
from tests.unit.dialects.holding import takes, told, walked
from tests.unit.dialects.prompted import PROMPTED, answers_quoted
from tests.unit.output.oracle import split

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
CALLS = st.builds(PastCall, id=WORDS, name=WORDS, arguments=JSON)
SAID = st.builds(Turn, st.just("assistant"), WORDS, st.tuples() | st.tuples(CALLS))
ROLES = st.sampled_from(["system", "user", "tool"])
TURNS = st.lists(SAID | st.builds(Turn, ROLES, WORDS, call_id=WORDS, name=WORDS))
TOOLS = st.builds(ToolSpec, name=WORDS, description=WORDS, input_schema=JSON)

OF_THEIR_OWN = ("gemma4", "qwen3-coder")
"""Families whose arguments are no JSON."""

each_dialect = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=[*DIALECTS])


def test_each_family_has_a_name_of_its_own():
    assert set(DIALECTS) == set(FINGERPRINTS)
    assert [each.name for each in DIALECTS.values()] == [*DIALECTS]


@each_case(("name", "template"), FINGERPRINTS.items())
def test_a_model_is_of_one_family(name, template):
    known = [each for each in DIALECTS if DIALECTS[each].recognises("llama", template)]
    assert known == [name] * (name != "generic")
    assert detect_dialect("llama", template) is DIALECTS[name]


@each_case(
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
    assert detect_dialect(architecture, "").name == name


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
    if dialect.tools_as_text is not None:
        plain = dialect.tools_as_text(turns, tools)
        assert not any(turn.calls for turn in plain)


@each_dialect
@settings(max_examples=20)
@given(tools=st.lists(TOOLS, min_size=1, max_size=2))
def test_a_grammar_can_be_written_for_any_tools(dialect: Dialect, tools):
    lark = LarkBuilder({marker: 7 for marker in dialect.markers if marker})
    try:
        source = lark.source(dialect.write_calls(lark, tools))
    except UnsupportedSchemaError:
        return
    assert source.startswith("start: ")
    assert all(": " in line for line in source.splitlines())


@each_dialect
def test_no_text_of_a_client_is_a_special_token_in_a_grammar(dialect):
    spelt = "a<|im_start|>b"
    listed = {
        "const": spelt,
        "enum": [spelt],
        "items": {"enum": [[spelt], {"k": spelt}]},
    }
    properties = {key: {key: value} for key, value in listed.items()}
    schema = {"properties": {**properties, spelt.replace(">", "]"): {}}}
    name = spelt if dialect.can_call(spelt) else "f"
    tool = ToolSpec(name=name, description="", input_schema=json.dumps(schema))
    lark = LarkBuilder({"<|im_start|>": 7777, "<|im_start|]": 7777, "im_start": 7777})
    assert "<[7777]>" in lark.marker(spelt)
    assert "<[7777]>" not in lark.source(dialect.write_calls(lark, [tool]))


@each_dialect
@settings(max_examples=20)
@given(tools=st.lists(TOOLS, max_size=2), text=WORDS | JSON)
def test_whatever_stands_between_markers_is_calls_or_none(dialect, tools, text):
    for region in dialect.regions:
        if region.read is not None:
            calls = region.read(text, tools)
            assert calls is None or all(isinstance(call, ParsedCall) for call in calls)


ODD = st.text('{}[]",: \n`;ARGS<|message>') | st.text(max_size=8)
HALVES = {
    "deepseek": "function<｜tool▁sep｜>{}\n```json\n`",  # noqa: RUF001  # its own bars
    "mistral": "f[ARGS]{}[ARGS]",
    "harmony": "f<|message|>{} 1",
}
"""Calls in which there is no JSON."""


@each_dialect
@settings(max_examples=40)
@given(text=ODD)
def test_what_is_no_json_is_no_call(dialect: Dialect, text):
    half = HALVES.get(dialect.name, "{}").replace("{}", text)
    for read_any in filter(None, [region.read for region in dialect.regions]):
        assert not read_any(text, ())
        assert not read_any(half, ())


# --- prompts, and what is read of them ----------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("family", "prompted"), PROMPTED.items(), ids=[*PROMPTED])
@given(turns=CONVERSATIONS, tools=CONVERSED_TOOLS, thinks=st.booleans())
def test_any_conversation_has_a_prompt_that_holds_it(
    family, prompted, turns, tools, thinks
):
    prompt = DIALECTS[family].render(turns, tools, thinks)
    assert prompt.endswith(prompted.ends)
    assert prompted.thinks[thinks] in prompt
    assert not prompted.thinks[1] or thinks or prompted.thinks[1] not in prompt
    told = (thinks and prompted.told_to_think) or prompted.told
    assert prompt.count(told) == bool(tools)
    for words in [prompted.tool.replace("x", each.name) for each in tools]:
        assert words in prompt
    for turn in turns:
        assert all(words in prompt for words in prompted.words(turn))


@pytest.mark.slow
@pytest.mark.parametrize("family", PROMPTED)
@settings(max_examples=60)
@given(calls=READABLE)
def test_calls_are_read_as_they_are_written_in_prompts(family, calls):
    for answer in answers_quoted(family, calls):
        assert read(DIALECTS[family], answer) == calls


# --- calls that are forced ----------------------------------------------------------


def texts_of(fragments):
    plain = st.characters(exclude_characters="\x7f", codec="utf-8")  # has to be escaped
    joined = st.lists(st.sampled_from(fragments), max_size=6).map("".join)
    return joined | st.text(plain, max_size=6)


TEXTS = texts_of(
    [
        *sorted(MARKERS),
        *('<|"|>', "<parameter=a>", "</parameter>", "<parameter=", "</function>"),
        *(
            "<function=f>",
            "[TOOL_CALLS]f[ARGS]{}",
            "\n```json\n",
            "```",
            '{"name": "f"',
        ),
        *('"', "\\", "{", "}", "[", "]", ",", ":", "; ", "\n", "ü😀\u2028", " ", "1"),
    ]
)
STRINGS = {"type": "array", "items": {"type": "string"}}
SHORT_CHARS = 400
SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "short": {"type": "string", "maxLength": SHORT_CHARS},
        "maybe": {"type": ["string", "null"]},
        "texts": STRINGS,
        "some": {"anyOf": [{"type": "string"}, STRINGS]},
        "map": {"type": "object", "additionalProperties": {"type": "string"}},
        "mode": {"enum": ["fast", "</tool>"]},
    },
    "additionalProperties": False,
}
GIVEN = {
    "text": TEXTS,
    "short": TEXTS.map(lambda text: text[:SHORT_CHARS]),
    "maybe": TEXTS | st.none(),
    "texts": st.lists(TEXTS, max_size=3),
    "some": TEXTS | st.lists(TEXTS, max_size=3),
    "map": st.dictionaries(st.sampled_from(["a", "b_c", "é"]), TEXTS, max_size=2),
    "mode": st.sampled_from(["fast", "</tool>"]),
}
ARGUMENTS = st.fixed_dictionaries({}, optional=GIVEN).map(
    lambda found: {name: found[name] for name in GIVEN if name in found}
)
CALLABLE = (
    ToolSpec(name="f", description="", input_schema=json.dumps(SCHEMA)),
    ToolSpec(name="free", description="", input_schema="{}"),
)
UNSAFE = ('<|"|>', "</tool_call>", "</parameter>")
"""What strings cannot always hold where arguments are no JSON."""
TOO_LARGE = re.compile(r"[eE]\+?\d{3}")
"""Numbers that are valid JSON and that nobody can read."""
KEY = re.compile(r'("(?:[^"\\]|\\.)*"): |<parameter=([^>]+)>|[{,]([^][:{},<>"]+):')


def has_key_twice(call):
    keys = KEY.findall(call.raw)
    return len(set(keys)) < len(keys)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "way"), WAYS)
@settings(max_examples=25)
@given(arguments=ARGUMENTS, data=st.data())
def test_a_call_of_any_strings_is_read_as_it_was_meant(family, way, arguments, data):
    text = FAMILIES[family].spells[way]([Spoken("f", arguments)])
    is_allowed = takes(DIALECTS[family], CALLABLE, text)
    is_unsafe = any(each in text for each in UNSAFE) or "some" in arguments
    assert is_allowed or (family in OF_THEIR_OWN and is_unsafe)
    if is_allowed:
        found = told(DIALECTS[family], CALLABLE, data.draw(split(text)))
        assert found == [ParsedCall("f", arguments)]


@pytest.mark.slow
@each_dialect
@settings(max_examples=20)
@given(seed=st.integers(0, 2**32))
def test_whatever_is_allowed_is_read_as_calls_that_the_tools_allow(dialect, seed):
    text = walked(dialect, CALLABLE, seed)
    if text is None or TOO_LARGE.search(text):
        return
    found = told(dialect, CALLABLE, [text])
    # No grammar can keep names that nobody has listed from coming twice.
    if any(
        isinstance(each, MalformedToolCall) and has_key_twice(each) for each in found
    ):
        return
    assert found, text
    for call in found:
        assert isinstance(call, ParsedCall), text
        assert call.name == "free" or jsonschema_rs.is_valid(SCHEMA, call.arguments)


# --- names of tools -----------------------------------------------------------------

NAMES = st.text(min_size=1, max_size=4) | TEXTS.filter(bool)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "way"), WAYS)
@settings(max_examples=25)
@given(name=NAMES)
def test_a_name_that_a_family_can_write_is_read_as_it_is(family, way, name):
    if DIALECTS[family].can_call(name):
        text = FAMILIES[family].spells[way]([Spoken(name, {})])
        assert told(DIALECTS[family], (), [text]) == [ParsedCall(name, {})]


@each_case(
    ("name", "families"),
    [
        ("get_weather-2.x", set()),
        ("wetter_für_zürich", set()),
        ("two words", {"mistral", "harmony", "gemma4"}),
        (" f", {"mistral", "harmony", "gemma4", "deepseek"}),
        ("a[0]", {"mistral", "harmony", "deepseek"}),
        ("a{b", {"mistral", "harmony", "gemma4", "deepseek"}),
        ("a<b", {"harmony", "gemma4", "deepseek"}),
        ("a>b", {"gemma4", "qwen3-coder"}),
        ("a\nb", {"mistral", "harmony", "gemma4", "deepseek", "qwen3-coder"}),
    ],
)
def test_a_name_is_refused_by_those_who_cannot_write_it_alone(name, families):
    unable = {each for each in DIALECTS if not DIALECTS[each].can_call(name)}
    assert unable == families


@each_case(
    ("template", "name"),
    [
        ("", "chatml"),
        ("llama3", "llama3"),
        ("no-such-name", "chatml"),
        ("{{ '<|im_start|>' }}", "chatml"),
        ("{{ '<start_of_turn>' }}", "gemma3"),
    ],
)
def test_a_template_may_be_the_name_of_a_built_in_one(template, name):
    assert dialect_of("qwen2", template).name == name
