"""Types become schemas that a daemon can enforce, and answers values of these types."""

import json
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, TypedDict

import llguidance
import msgspec
import pydantic
import pytest

from inferd.client.core.answer import FinalAnswer
from inferd.client.core.failures import AnswerNotOfType
from inferd.client.core.structures import AnswerType, closed
from inferd.wire.responses import UsageV2


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: float
    y: float = 0.0


class Shape(msgspec.Struct, tag=True):
    name: str
    points: list[Point]
    colour: Colour = Colour.RED


class Circle(msgspec.Struct, tag=True):
    radius: float


class Row(TypedDict):
    properties: str  # a field with the name of a keyword
    default: int


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=40)
    born: Point | None = None


def answer(text: str, *, is_complete: bool = True) -> FinalAnswer:
    return FinalAnswer(
        text=text,
        thinking="",
        tool_calls=(),
        stop_reason="end_turn" if is_complete else "max_tokens",
        usage=UsageV2(1, 1),
        model="m",
        structure_complete=is_complete,
    )


CASES: list[tuple[Any, str, object]] = [
    (Point, '{"x":1}', Point(1)),
    (Shape, '{"type":"Shape","name":"a","points":[]}', Shape("a", [])),
    (Shape | Circle, '{"type":"Circle","radius":2}', Circle(2)),
    (list[Point], '[{"x":1,"y":2}]', [Point(1, 2)]),
    (Row, '{"properties":"a","default":1}', {"properties": "a", "default": 1}),
    (Literal["yes", "no"], '"no"', "no"),
    (Person, '{"name":"Ada","born":{"x":1}}', Person(name="Ada", born=Point(1))),
]


def objects(schema: Any) -> list[Any]:
    """Find the schemas of objects."""
    if isinstance(schema, list):
        return [found for each in schema for found in objects(each)]
    if not isinstance(schema, dict):
        return []
    own = [schema] if schema.get("type") == "object" else []
    return own + [found for each in schema.values() for found in objects(each)]


def test_types_of_every_kind_are_enforced_and_read():
    for wanted, text, value in CASES:
        structure = AnswerType(wanted)
        assert structure.read(answer(text)) == value
        source = json.dumps(structure.schema)
        grammar = llguidance.LLMatcher.grammar_from_json_schema(source)
        assert llguidance.LLMatcher.validate_grammar(grammar) == "", wanted
        found = objects(structure.schema)
        assert all(each["additionalProperties"] is False for each in found), wanted


def test_data_of_a_schema_is_no_schema():
    schema = {"const": {"properties": {"a": 1}, "discriminator": 2}}
    assert closed(dict(schema)) == schema
    assert closed({"type": "object", "additionalProperties": {"type": "string"}}) == {
        "type": "object",
        "additionalProperties": {"type": "string"},
    }


def test_an_answer_that_is_not_of_the_type_says_whether_it_was_cut():
    for text, is_complete in [('{"x":', False), ('{"x":"no"}', True)]:
        for wanted in (Point, Person):
            with pytest.raises(AnswerNotOfType) as caught:
                AnswerType[object](wanted).read(answer(text, is_complete=is_complete))
            assert caught.value.is_cut is not is_complete
            assert caught.value.text == text


def test_a_type_without_a_schema_is_refused_before_anything_is_asked():
    with pytest.raises(TypeError):
        AnswerType(object.__subclasses__()[0])
