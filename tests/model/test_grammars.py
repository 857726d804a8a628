import json
import re
from typing import Any

import jsonschema_rs
import pytest

from inferd.backend.events import Text, Thinking, ToolUse
from inferd.backend.job import GenerateJob, Sampling, Structure, ToolChoice, ToolSpec
from inferd.dialects.registry import DIALECTS
from inferd.output.parser import BlockParser, ParsedBlock
from inferd.worker.llama.grammar.build import answer_grammar
from inferd.worker.llama.grammar.constraint import ConstraintError
from tests.model.spellings import FAMILIES, WAYS, Spoken

pytestmark = pytest.mark.model

SAMPLING = Sampling(temperature=0, top_p=1, top_k=0, seed=0)
SCHEMAS: dict[str, dict[str, Any]] = {
    "get_weather": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
    },
    "add": {
        "type": "object",
        "properties": {
            "mode": {"enum": ["fast", "slow"]},
            "opt": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "point": {"$ref": "#/$defs/point"},
            "xs": {"type": "array", "items": {"type": "number"}, "minItems": 1},
        },
        "required": ["mode", "xs"],
        "$defs": {
            "point": {
                "type": "object",
                "properties": {
                    "next": {"$ref": "#/$defs/point"},
                    "x": {"type": "integer"},
                },
                "required": ["x"],
            },
        },
    },
    "find": {
        "$ref": "#/$defs/query",
        "$defs": {
            "query": {
                "properties": {"code": {"allOf": [{"$ref": "#/$defs/code"}]}},
                "required": ["code"],
            },
            "code": {"type": "string", "maxLength": 5},
        },
    },
    "free": {},
    "now": {"type": "object", "properties": {}},
}
GOOD = [
    Spoken("get_weather", {"city": 'Zürich "x" {} 😀\\ </', "days": -2}),
    Spoken("get_weather", {"city": ""}),
    Spoken("add", {"mode": "fast", "xs": [1, 2.5, -3e2]}),
    Spoken(
        "add",
        {"mode": "slow", "opt": None, "point": {"next": {"x": 2}, "x": 1}, "xs": [0]},
    ),
    Spoken("find", {"code": "80331"}),
    Spoken("free", {"a": [1, {"b": None}], "c_d": True}),
    Spoken("free", {}),
    Spoken("now", {}),
]
BAD = [
    Spoken("get_wether", {"city": "a"}),
    Spoken("get_weather", {"days": 2}),
    Spoken("get_weather", {}),
    Spoken("get_weather", {"city": "a", "country": "b"}),
    Spoken("get_weather", {"city": "a", "days": "two"}),
    Spoken("get_weather", {"city": "a", "days": 1.5}),
    Spoken("add", {"mode": "slow", "xs": []}),
    Spoken("add", {"mode": "slow", "xs": "1"}),
    Spoken("add", {"mode": "brisk", "xs": [1]}),
    Spoken("add", {"mode": "slow", "point": {"next": {}, "x": 1}, "xs": [1]}),
    Spoken("find", {"code": "803310"}),
    Spoken("find", {"code": "80331", "town": "a"}),
    Spoken("now", {"zone": "utc"}),
]
NEARBY: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 5},
        "kind": {"enum": ["town", 7, None]},
        "near": {
            "type": "array",
            "items": {"type": "integer", "minimum": -99, "maximum": 99},
            "maxItems": 3,
        },
        "size": {
            "type": "object",
            "properties": {"is_big": {"type": "boolean"}, "name": {"const": "ö"}},
            "required": ["is_big"],
            "additionalProperties": False,
        },
    },
    "required": ["city", "near"],
    "additionalProperties": False,
}
"""What a walk at random comes to the end of."""
WALKED = {"near": NEARBY, "now": SCHEMAS["now"]}
N_WALKS = 24


def tools_of(schemas) -> tuple[ToolSpec, ...]:
    return tuple(
        ToolSpec(name=name, description="", input_schema=json.dumps(schema))
        for name, schema in schemas.items()
    )


TOOLS = tools_of(SCHEMAS)
REQUIRED = ToolChoice("required")


def held(walker, family, *, open_thought="", special=None, **asked):
    """Give what an answer to a job is held to; to one that has to call, unless told."""
    fields: dict[str, Any] = {"tools": TOOLS, "tool_choice": REQUIRED, **asked}
    job = GenerateJob(turns=[], max_tokens=9, sampling=SAMPLING, **fields)
    special = walker.vocabulary.special if special is None else special
    grammar = answer_grammar(DIALECTS[family], job, special, open_thought=open_thought)
    return walker.hold(grammar)


def takes(walker, constraint, text) -> bool:
    """Tell whether a text is allowed as a whole."""
    try:
        constraint.accept(walker.model.tokenize(text, parses_special=False))
    except ConstraintError:
        return False
    return bool(constraint.is_complete)


def told(family, text, tools=TOOLS, *, open_thought="") -> list[Any]:
    """Read an answer as clients are told it."""
    regions = DIALECTS[family].regions
    parser = BlockParser(regions, tools, open_thought=open_thought)
    return [_spoken(each) for each in [*parser.feed(text), *parser.finish()]]


def _spoken(said: ParsedBlock) -> Any:
    if not isinstance(said, ToolUse):
        return said
    assert isinstance(said.input, dict)
    return Spoken(said.name, said.input)


def test_every_family_is_spelled():
    assert FAMILIES.keys() == DIALECTS.keys()
    assert {name for name in FAMILIES if FAMILIES[name].thought} == {
        name for name in DIALECTS if DIALECTS[name].thoughts
    }


# --- calls that are forced --------------------------------------------------------------


@pytest.mark.parametrize(("family", "way"), WAYS)
def test_a_call_that_a_tool_allows_is_allowed_and_read_as_it_was_meant(
    walker, family, way
):
    for call in GOOD:
        text = FAMILIES[family].spells[way]([call])
        assert takes(walker, held(walker, family), text), text
        assert told(family, text) == [call]


@pytest.mark.parametrize(("family", "way"), WAYS)
def test_calls_in_a_row_are_allowed_where_the_family_has_them(walker, family, way):
    calls = GOOD[: FAMILIES[family].n_calls]
    text = FAMILIES[family].spells[way](calls)
    assert takes(walker, held(walker, family), text)
    assert told(family, text) == calls


@pytest.mark.parametrize(("family", "way"), WAYS)
def test_a_call_that_no_tool_allows_is_not(walker, family, way):
    for call in BAD:
        text = FAMILIES[family].spells[way]([call])
        assert not takes(walker, held(walker, family), text), text


@pytest.mark.parametrize(("family", "way"), WAYS)
def test_nothing_stands_beside_calls_and_no_part_of_one_is_enough(walker, family, way):
    text = FAMILIES[family].spells[way](GOOD[:1])
    beside = [f"{text} so", f"So {text}", f"{text}\n\n{text}", "So.", ""]
    for wrong in [*beside, text[:-1], text[: len(text) // 2]]:
        assert not takes(walker, held(walker, family), wrong), wrong


@pytest.mark.parametrize("family", FAMILIES)
def test_a_tool_that_is_named_is_the_only_one(walker, family):
    choice = ToolChoice("named", "now")
    for spell in FAMILIES[family].spells.values():
        for call in GOOD:
            constraint = held(walker, family, tool_choice=choice)
            assert takes(walker, constraint, spell([call])) is (call.name == "now")


MARKER = re.compile(r"(<[^<>=\s]+>|\[[A-Z_]+\])")
FIRST_MARKER = 40_000


@pytest.mark.parametrize(("family", "way"), WAYS)
def test_markers_may_be_tokens_of_their_own_of_any_number(walker, family, way):
    text = FAMILIES[family].spells[way](GOOD[:1])
    special = {each: FIRST_MARKER + n for n, each in enumerate(MARKER.findall(text))}
    tokens: list[int] = []
    for part in filter(None, MARKER.split(text)):
        marker = special.get(part)
        tokens += [marker] if marker else walker.model.tokenize(part)
    constraint = held(walker, family, special=special)
    constraint.accept(tokens)
    assert constraint.is_complete


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_whatever_is_allowed_is_read_as_calls_that_the_tools_allow(walker, family):
    tools = tools_of(WALKED)
    for seed in range(N_WALKS):
        constraint = held(walker, family, tools=tools)
        text = walker.write(constraint, seed).decode()
        assert constraint.is_complete, text
        calls = told(family, text, tools)
        assert calls
        for call in calls:
            assert isinstance(call, Spoken), text
            jsonschema_rs.validate(WALKED[call.name], call.arguments)
        for spell in FAMILIES[family].spells.values():
            again = spell(calls)
            assert told(family, again, tools) == calls


# --- thoughts before calls and texts ----------------------------------------------------

THINKING = {name: family for name, family in FAMILIES.items() if family.thought}
OBJECT = Structure(
    kind="json_schema",
    source=json.dumps(
        {
            "type": "object",
            "properties": {"n": {"type": "integer"}},
            "required": ["n"],
            "additionalProperties": False,
        }
    ),
)
TEXT = '{"n": 3}'
PONDERED = 'Hm: "ö" <|… </ [/ 😀\n\n{"n": 3}'


def thought_of(family, *, is_open=False) -> str:
    thought = THINKING[family].thought
    assert thought is not None
    begin, end = thought
    return f"{PONDERED}{end}" if is_open else f"{begin}{PONDERED}{end}"


@pytest.mark.parametrize(("family", "way"), WAYS)
def test_a_thought_may_stand_before_a_forced_call_where_one_is_wanted(
    walker, family, way
):
    call = FAMILIES[family].spells[way](GOOD[:1])
    assert takes(walker, held(walker, family, thinks=True), call)
    if family not in THINKING:
        return
    text = f"{thought_of(family)}{THINKING[family].goes_on}{call}"
    assert takes(walker, held(walker, family, thinks=True), text)
    assert told(family, text) == [Thinking(PONDERED), GOOD[0]]
    assert not takes(walker, held(walker, family), text)


def marker_of(family) -> str:
    return DIALECTS[family].thoughts[0].begins[0]


@pytest.mark.parametrize("family", THINKING)
def test_a_thought_is_not_enough(walker, family):
    thought = thought_of(family)
    rest = thought_of(family, is_open=True)
    for asked in ({}, {"tools": (), "structure": OBJECT, "tool_choice": ToolChoice()}):
        asked |= {"thinks": True}
        assert not takes(walker, held(walker, family, **asked), thought)
        opened = held(walker, family, open_thought=marker_of(family), **asked)
        assert not takes(walker, opened, rest)


@pytest.mark.parametrize("family", THINKING)
@pytest.mark.parametrize("thinks", [True, False])
def test_a_thought_that_the_prompt_has_opened_ends_before_what_is_asked_for(
    walker, family, thinks
):
    asked = {"thinks": thinks, "open_thought": marker_of(family)}
    rest = thought_of(family, is_open=True) + THINKING[family].goes_on
    for spell in THINKING[family].spells.values():
        call = spell(GOOD[:1])
        assert takes(walker, held(walker, family, **asked), rest + call)
        blocks = told(family, rest + call, open_thought=marker_of(family))
        assert blocks == [Thinking(PONDERED), GOOD[0]]
        assert not takes(walker, held(walker, family, **asked), call)


def structured(walker, family, **asked):
    asked = {"tools": (), "tool_choice": ToolChoice()} | asked
    return held(walker, family, structure=OBJECT, **asked)


@pytest.mark.parametrize("family", FAMILIES)
def test_text_is_what_a_structure_says_and_nothing_else(walker, family):
    for begin in FAMILIES[family].before_text:
        assert takes(walker, structured(walker, family), begin + TEXT)
        assert told(family, begin + TEXT) == [Text(TEXT)]
        for wrong in (f"{TEXT}.", f"So {TEXT}", '{"n": "3"}', TEXT[:-1], "{}"):
            assert not takes(walker, structured(walker, family), begin + wrong)


@pytest.mark.parametrize("family", THINKING)
def test_a_thought_may_stand_before_a_structure_where_one_is_wanted(walker, family):
    text = thought_of(family)
    for begin in THINKING[family].before_text:
        goes_on = THINKING[family].goes_on if begin else ""
        whole = f"{text}{goes_on}{begin}{TEXT}"
        assert takes(walker, structured(walker, family, thinks=True), whole), whole
        assert told(family, whole) == [Thinking(PONDERED), Text(TEXT)]
        assert not takes(walker, structured(walker, family), whole)


@pytest.mark.parametrize(("family", "way"), WAYS)
def test_a_structure_leaves_calls_to_the_model_unless_they_are_chosen_or_not(
    walker, family, way
):
    call = FAMILIES[family].spells[way](GOOD[:1])
    wrong = FAMILIES[family].spells[way](BAD[:1])
    for kind, takes_call, takes_text in (
        (ToolChoice("auto"), True, True),
        (ToolChoice("none"), False, True),
        (ToolChoice("required"), True, False),
    ):
        choice = {"tools": TOOLS, "tool_choice": kind}
        assert takes(walker, structured(walker, family, **choice), call) is takes_call
        assert takes(walker, structured(walker, family, **choice), TEXT) is takes_text
        assert not takes(walker, structured(walker, family, **choice), wrong)
