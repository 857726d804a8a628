import json
import time
from typing import Any

import pytest
from llguidance import LLMatcher, LLTokenizer
from msgspec.structs import replace

from inferd.backend.job import GenerateJob, Sampling, Structure, ToolChoice, ToolSpec
from inferd.dialects.dialect import Dialect
from inferd.dialects.registry import DIALECTS
from inferd.limits.protocol import GRAMMAR_MAX_BYTES
from inferd.worker.backend import RefusedError
from inferd.worker.llama.grammar.build import (
    answer_grammar,
    grammar_of,
    refuse_end_tokens,
    refuse_tool_names,
)
from inferd.worker.llama.grammar.compiler import LIMITS
from tests.cases import each_case

TOKENIZER = LLTokenizer("byte")
SAMPLING = Sampling(temperature=0, top_p=1, top_k=0, seed=0)
TOOLS = tuple(
    ToolSpec(name=name, description="", input_schema='{"properties": {}}')
    for name in ("first", "second")
)
YES = Structure(kind="regex", source="yes|no")


def source_for(dialect="qwen", *, open_thought="", **asked):
    job = GenerateJob(turns=[], max_tokens=9, sampling=SAMPLING, **asked)
    grammar = answer_grammar(DIALECTS[dialect], job, {}, open_thought=open_thought)
    return grammar.source


def takes(source, text):
    matcher = LLMatcher(TOKENIZER, source, log_level=0, limits=LIMITS)
    assert not matcher.is_error(), matcher.get_error()
    return matcher.consume_tokens([*text.encode()]) and matcher.is_accepting()


def call(name):
    return f'<tool_call>\n{{"name": "{name}", "arguments": {{}}}}\n</tool_call>'


@each_case(
    ("kind", "source", "fits", "does_not"),
    [
        ("json_schema", '{"type": "array", "items": {"const": 1}}', "[1, 1]", "[1,1]"),
        ("json_schema", "true", '{"a": null}', "{"),
        ("regex", "a/b\\/c|^d$", "a/b/c", "a"),
        ("gbnf", 'root ::= [a-z]+ "."', "abc.", "abc"),
        ("lark", "start: A\nA: /[0-9]+/", "12", "x"),
    ],
)
def test_each_kind_of_structure_holds_a_text(kind, source, fits, does_not):
    structure = Structure(kind=kind, source=source)
    for grammar in (grammar_of(structure).source, source_for(structure=structure)):
        assert takes(grammar, fits)
        assert not takes(grammar, does_not)


@each_case(
    ("choice", "fits", "does_not"),
    [
        (ToolChoice("required"), [call("first"), call("second")], ["yes", "Hello"]),
        (ToolChoice("named", "first"), [call("first")], [call("second"), "yes"]),
        (ToolChoice("none"), ["yes"], [call("first")]),
        (ToolChoice(), ["yes", call("first")], ["Hello", f"yes{call('first')}"]),
    ],
    ids=lambda value: value.kind if isinstance(value, ToolChoice) else "",
)
def test_the_choice_of_tools_says_what_else_there_may_be(choice, fits, does_not):
    source = source_for(structure=YES, tools=TOOLS, tool_choice=choice)
    assert all(takes(source, text) for text in fits)
    assert not any(takes(source, text) for text in does_not)


@each_case(
    ("asked", "text", "fits"),
    [
        ({"thinks": True}, "<think>\nhm {\n</think>\n\nyes", True),
        ({"thinks": True}, "yes", True),
        ({"thinks": True}, "<think>hm", False),
        ({}, "<think>hm</think>yes", False),
        ({"open_thought": "<think>"}, "hm</think>no", True),
        ({"open_thought": "<think>"}, "\nhm\n</think>\n\nno", True),
        ({"open_thought": "<think>"}, "no", False),
        ({"open_thought": "<think>"}, "hm</think> no", False),
    ],
)
def test_a_thought_is_free_where_there_may_be_one(asked, text, fits):
    assert takes(source_for(structure=YES, **asked), text) == fits


def test_a_thought_may_be_of_any_kind_that_the_family_has():
    source = source_for("mistral", structure=YES, thinks=True)
    assert takes(source, "[THINK]hm[/THINK]yes")
    assert takes(source, "<think>hm</think>yes")
    assert not takes(source, "<think>hm[/THINK]yes")
    opened = source_for("mistral", structure=YES, open_thought="<think>")
    assert takes(opened, "hm[/THINK]</think>yes")
    assert not takes(opened, "hm[/THINK]yes")


def test_text_may_have_the_marker_that_a_family_writes_before_it():
    source = source_for("harmony", structure=YES)
    assert takes(source, "<|channel|>final<|message|>yes")
    assert takes(source, "yes")
    assert not takes(source, "<|channel|>final<|message|>maybe")
    thinking = source_for("harmony", structure=YES, thinks=True)
    begin = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant"
    assert takes(thinking, f"{begin}<|channel|>final<|message|>no")


def test_a_text_of_v1_has_no_marker_before_it():
    source = source_for("harmony", structure=replace(YES, in_v1=True))
    assert takes(source, "yes")
    assert not takes(source, "<|channel|>final<|message|>yes")


def test_a_text_of_v1_has_no_thought_before_it():
    in_v1 = replace(YES, in_v1=True)
    source = source_for("mistral", structure=in_v1, open_thought="<think>")
    assert takes(source, "yes")
    assert not takes(source, "hm</think>yes")


def test_options_for_the_compiler_are_ours():
    schema = {"x-guidance": {"whitespace_flexible": True}, "const": [1, 2]}
    grammar = grammar_of(Structure(kind="json_schema", source=json.dumps(schema)))
    assert takes(grammar.source, "[1, 2]")
    assert not takes(grammar.source, "[ 1, 2]")


@each_case(
    "option",
    [
        'stop="x"',
        "temperature = 0.5",
        'max_tokens=3, stop="x"',
        'capture="x", stop="e"',
        'capture="]\\"", stop="e"',
        r"suffix=/e\/]/, temperature=0",
        'stop_capture="x", stop=/e/',
    ],
)
def test_options_of_rules_that_cannot_be_honoured_are_refused(option):
    source = f"start: a\n  a[{option}]: /[a-z]+/"
    with pytest.raises(RefusedError, match=r"^response_format\.grammar: line 2: "):
        grammar_of(Structure(kind="lark", source=source))


@each_case(
    "source",
    [
        '# "\nstart: a\na[temperature=1]: /x/ // "',
        'start: b | <|"|> a\na[temperature=1]: /x/ b: "',
        'start: a\n%llguidance {"a": "["} a[temperature=1]: /x/',
        "start: a\n%override a[temperature=1]: /x/",
    ],
)
def test_options_are_found_wherever_a_rule_may_begin(source):
    with pytest.raises(RefusedError, match="temperature is not supported"):
        grammar_of(Structure(kind="lark", source=source))


@pytest.mark.parametrize("sign", ['"', "\\", "/", "<", '\\"', "/\\", 'stop "'])
@pytest.mark.alone
def test_options_are_looked_for_in_linear_time(sign):
    source = "start: /x/ " + sign * (GRAMMAR_MAX_BYTES // len(sign))
    began = time.process_time()
    grammar_of(Structure(kind="lark", source=source))
    assert time.process_time() - began < 0.1


@each_case(
    "source",
    [
        "start: /[stop=]+/",
        'start: "a[temperature=1]"',
        "start: /a/ # a[stop=/x/]",
        "start: stop // a[temperature=0]\nstop: /b/",
        'start: %json {"const": "a[stop=1]"}',
        r'start: "\"" "a[stop=1]" /\/a[stop=1]/',
    ],
)
def test_lookalikes_of_options_are_allowed(source):
    grammar = grammar_of(Structure(kind="lark", source=source))
    assert json.loads(grammar.source)["grammars"][1]["lark_grammar"] == source


@pytest.mark.parametrize(
    ("kind", "source", "field"),
    [
        ("json_schema", "{" * 9, "response_format.schema"),
        ("json_schema", "[" * 100_000, "response_format.schema"),
        ("gbnf", "root ::= other", "response_format.grammar"),
    ],
)
def test_an_unreadable_schema_is_refused_by_its_field(kind, source, field):
    with pytest.raises(RefusedError, match=f"^{field}: "):
        grammar_of(Structure(kind=kind, source=source))


def test_numbers_that_would_be_changed_are_refused_wherever_they_come_from():
    changed = '{"properties": {"n": {"const": 1234567890123456789}}}'
    tool = ToolSpec(name="third", description="", input_schema=changed)
    with pytest.raises(
        RefusedError, match=r"^tools\[2\]\.input_schema/properties/n/con"
    ):
        source_for(tools=(*TOOLS, tool), tool_choice=ToolChoice("required"))
    with pytest.raises(
        RefusedError, match=r"^response_format\.schema/properties/n/con"
    ):
        source_for(structure=Structure(kind="json_schema", source=changed))
    assert source_for(tools=(*TOOLS, tool), tool_choice=ToolChoice("named", "first"))


def test_nothing_that_has_to_follow_is_worked_out_beforehand():
    for structure in (
        Structure(kind="regex", source="a{1000}"),
        Structure(kind="lark", source='start: "ab"'),
    ):
        grammar = grammar_of(structure)
        matcher = LLMatcher(TOKENIZER, grammar.source, log_level=0, limits=LIMITS)
        assert not matcher.is_error()
        assert matcher.compute_ff_tokens() == []


def test_each_part_compiles_alone_and_names_its_field():
    job = GenerateJob(
        turns=[],
        max_tokens=9,
        sampling=SAMPLING,
        structure=YES,
        tools=TOOLS,
        tool_choice=ToolChoice(),
    )
    grammar = answer_grammar(DIALECTS["qwen"], job, {}, open_thought="")
    assert [part.field for part in grammar.parts] == [
        "response_format.pattern",
        "tools[0].input_schema",
        "tools[1].input_schema",
    ]
    assert takes(grammar.parts[0].source, "yes")
    assert takes(grammar.parts[2].source, call("second"))
    assert not takes(grammar.parts[2].source, call("first"))


def forced(
    dialect: str, *tools: ToolSpec, choice: Any = "required"
) -> tuple[Dialect, GenerateJob]:
    job = GenerateJob(
        turns=[],
        max_tokens=9,
        sampling=SAMPLING,
        tools=tools,
        tool_choice=ToolChoice(choice, tools[0].name),
    )
    return DIALECTS[dialect], job


@pytest.mark.parametrize("family", ["gemma4", "qwen3-coder"])
def test_a_schema_that_a_family_cannot_hold_to_is_refused_by_its_place(family):
    schema = {"properties": {"a": {"type": "string", "format": "date"}}}
    tool = ToolSpec(name="third", description="", input_schema=json.dumps(schema))
    where = r'^tools\[2\]\.input_schema/properties/a: not supported: \["format"\]$'

    def held(dialect, choice="required"):
        asked = forced(dialect, *TOOLS, tool, choice=choice)
        return answer_grammar(*asked, special={}, open_thought="")

    with pytest.raises(RefusedError, match=where):
        held(family)
    assert held("qwen")
    assert held(family, "named")


def test_a_tool_is_refused_by_its_name_where_its_calls_could_not_be_read():
    tool = ToolSpec(name='two "words"', description="", input_schema="{}")
    refuse_tool_names(*forced("qwen", *TOOLS, tool))
    refuse_tool_names(*forced("mistral", *TOOLS, tool, choice="none"))
    name = (
        r'^tools: the calls of mistral models cannot hold the name "two \\"words\\""$'
    )
    for choice in ("auto", "named", "required"):
        with pytest.raises(RefusedError, match=name):
            refuse_tool_names(*forced("mistral", *TOOLS, tool, choice=choice))


ENDS = {"<|im_end|>": 2, "</s>": 7}


@each_case(
    ("source", "line"),
    [
        ("start: <[2]>", 1),
        ("start: a\na: <|im_end|>", 2),
        ('start: "//" </s>', 1),
        ("start: <[1,5-9]>", 1),
        ("start: <[*]>", 1),
        ("start: <[^2]>", 1),
        ("start: /[/]/ a\n\na: <[0-7]>", 3),
        ("start: <[3]>", None),
        ("start: <[^2,7]>", None),
        ("start: <[3-6]> <|im_start|>", None),
        ('start: "<|im_end|>" "\\"</s>"', None),
        ("start: /<[2]>/ // <[2]>", None),
    ],
)
def test_a_token_that_ends_the_answer_is_refused_in_its_text(source, line):
    structure = Structure(kind="lark", source=source)
    refuse_end_tokens(structure, {})
    if line is None:
        refuse_end_tokens(structure, ENDS)
        return
    with pytest.raises(
        RefusedError, match=rf"^response_format\.grammar: line {line}: <"
    ):
        refuse_end_tokens(structure, ENDS)


def test_only_a_grammar_of_lark_has_tokens():
    refuse_end_tokens(Structure(kind="regex", source="<[2]>"), ENDS)
