import pytest
from msgspec import UNSET, Raw

from inferd.backend.job import Structure, ToolChoice, ToolSpec
from inferd.errors import InvalidRequestError
from inferd.resolve.structure import choice_of, grammar_of, structure_of, tools_of
from inferd.wire import blocks
from inferd.wire.blocks import (
    BlocksRequest,
    Message,
    NamedTool,
    ResponseFormat,
    TextBlock,
)
from tests.cases import each_case

SCHEMA = b'{"type": "object", "maximum": 1.0}'
TOOLS = [blocks.Tool("f", "does f", Raw(SCHEMA)), blocks.Tool("g", "", Raw(b"{}"))]


def said(function, *arguments) -> str:
    with pytest.raises(InvalidRequestError) as caught:
        function(*arguments)
    return str(caught.value)


def asking(choice, tools=TOOLS) -> BlocksRequest:
    turn = Message("user", [TextBlock("hi")])
    return BlocksRequest(messages=[turn], tools=tools, tool_choice=choice)


@each_case(
    ("asked", "structure"),
    [
        (None, None),
        (
            ResponseFormat(type="json_schema", schema=Raw(SCHEMA)),
            Structure(kind="json_schema", source=SCHEMA.decode()),
        ),
        (
            ResponseFormat(type="json_schema", schema=Raw(b"true"), pattern="x"),
            Structure(kind="json_schema", source="true"),
        ),
        (
            ResponseFormat(type="regex", pattern="a+"),
            Structure(kind="regex", source="a+"),
        ),
        (
            ResponseFormat(type="gbnf", grammar='root ::= "a"'),
            Structure(kind="gbnf", source='root ::= "a"'),
        ),
        (
            ResponseFormat(type="lark", grammar='start: "a"'),
            Structure(kind="lark", source='start: "a"'),
        ),
    ],
)
def test_a_structure_is_kept_as_it_was_written(asked, structure):
    assert structure_of(asked) == structure


@each_case(
    ("asked", "text"),
    [
        (
            ResponseFormat(type="json"),
            "response_format.type json not in [json_schema, regex, gbnf, lark]",
        ),
        (
            ResponseFormat(type="json_schema", schema=UNSET),
            "response_format.schema is missing",
        ),
        (ResponseFormat(type="regex"), "response_format.pattern is missing"),
        (ResponseFormat(type="gbnf"), "response_format.grammar is missing"),
        (
            ResponseFormat(type="lark", pattern="x"),
            "response_format.grammar is missing",
        ),
    ],
)
def test_half_a_structure_is_refused(asked, text):
    assert said(structure_of, asked) == text


@pytest.mark.parametrize("letter", ["a", "é", "😀"])
def test_a_structure_is_counted_in_bytes(letter):
    fits = letter * (65_536 // len(letter.encode()))
    assert structure_of(ResponseFormat(type="regex", pattern=fits)) is not None
    n_bytes = len((fits + letter).encode())
    assert said(structure_of, ResponseFormat(type="regex", pattern=fits + letter)) == (
        f"response_format.pattern has {n_bytes} bytes, at most 65536 are allowed"
    )
    assert said(grammar_of, fits + letter) == (
        f"grammar has {n_bytes} bytes, at most 65536 are allowed"
    )


def test_a_grammar_has_4096_alternatives_at_most():
    assert grammar_of("|" * 4096) == Structure(
        kind="gbnf", source="|" * 4096, in_v1=True
    )
    assert said(grammar_of, "|" * 4097) == (
        "grammar has 4097 alternatives (|), at most 4096 are allowed"
    )
    assert structure_of(ResponseFormat(type="regex", pattern="|" * 4097))


def test_no_grammar_is_no_structure():
    assert grammar_of("") is None


@each_case(
    ("choice", "resolved"),
    [
        (None, ToolChoice("auto")),
        ("auto", ToolChoice("auto")),
        ("none", ToolChoice("none")),
        ("required", ToolChoice("required")),
        (NamedTool("g"), ToolChoice("named", "g")),
    ],
)
def test_a_choice_of_tools_is_one_of_four(choice, resolved):
    assert choice_of(asking(choice)) == resolved
    assert resolved.is_forced == (choice == "required" or choice == NamedTool("g"))


@each_case(
    ("asked", "text"),
    [
        (asking("any"), "tool_choice any not in [auto, required, none]"),
        (asking(NamedTool("h")), "tool_choice names no tool: h"),
        (asking(NamedTool("f"), []), "tool_choice names no tool: f"),
        (
            asking("required", []),
            "tool_choice required needs a non-empty tools array",
        ),
    ],
)
def test_a_choice_that_nobody_could_honour_is_refused(asked, text):
    assert said(choice_of, asked) == text


def test_tools_keep_their_schema_as_it_was_written():
    assert tools_of(asking(None)) == (
        ToolSpec(name="f", description="does f", input_schema=SCHEMA.decode()),
        ToolSpec(name="g", description="", input_schema="{}"),
    )


def test_a_schema_that_is_no_text_is_refused():
    schema = Raw(b'{"const": "\xff"}')
    asked = ResponseFormat(type="json_schema", schema=schema)
    assert said(structure_of, asked) == "response_format.schema is not UTF-8"
    tools = [TOOLS[0], blocks.Tool("h", "", schema)]
    assert said(tools_of, asking(None, tools)) == "tools[1].input_schema is not UTF-8"


@each_case(
    ("structure", "field"),
    [
        (Structure(kind="json_schema", source="{}"), "response_format.schema"),
        (Structure(kind="regex", source=""), "response_format.pattern"),
        (Structure(kind="gbnf", source=""), "response_format.grammar"),
        (Structure(kind="lark", source=""), "response_format.grammar"),
        (Structure(kind="gbnf", source="", in_v1=True), "grammar"),
    ],
)
def test_a_structure_knows_the_field_that_it_came_in(structure, field):
    assert structure.field == field
