"""Conversations as clients may make them up, and what families write of calls."""

from collections.abc import Sequence

import msgspec
from hypothesis import strategies as st

from inferd.backend.events import ToolUse
from inferd.backend.job import PastCall, ToolSpec, Turn
from inferd.dialects.dialect import Dialect, ParsedCall
from inferd.dialects.registry import DIALECTS
from inferd.output.parser import BlockParser
from tests.unit.strategies import ANY_JSON

TEXTS = st.text(max_size=8)
WORDS = st.text("abcü_", min_size=1, max_size=8)
OBJECTS = st.dictionaries(TEXTS, ANY_JSON, max_size=2)
ARGUMENTS = st.sampled_from(
    ["{}", '{"a": "ü"}', "[1]", "no JSON", '"\\ud800"', "[" * 1999, "NaN", ""]
)
SCHEMAS = st.sampled_from(
    [
        "{}",
        "true",
        "[",
        '{"properties": {"a": {"type": ["string", "null"]}}, "required": ["a"]}',
        '{"properties": {"a": {"$ref": "#"}, "b": {"items": {"$ref": "#"}}}}',
        '{"properties": {"a": 7, "b": {"type": 7, "enum": 7, "anyOf": []}}}',
    ]
)
IDS = st.sampled_from(["tc-0", "tc-1", ""])
CALLS = st.builds(PastCall, id=IDS, name=WORDS, arguments=ARGUMENTS)
TURNS = st.one_of(
    st.builds(Turn, st.sampled_from(["system", "user", "assistant"]), TEXTS),
    st.builds(
        Turn,
        st.just("assistant"),
        TEXTS,
        calls=st.lists(CALLS, min_size=1, max_size=3).map(tuple),
    ),
    st.builds(Turn, st.just("tool"), TEXTS, call_id=IDS, name=WORDS | st.just("")),
)
CONVERSATIONS = st.lists(TURNS, max_size=6)
TOOLS = st.lists(
    st.builds(ToolSpec, name=WORDS, description=TEXTS, input_schema=SCHEMAS), max_size=2
)

MARKERS = frozenset(
    filter(None, (each for dialect in DIALECTS.values() for each in dialect.markers))
)


READABLE = st.lists(st.builds(ParsedCall, WORDS, OBJECTS), min_size=1, max_size=3)
"""Calls that any family can write whose arguments are JSON."""


def calling(calls: Sequence[ParsedCall]) -> Turn:
    """Make the turn in which the assistant has called."""
    written = [
        PastCall(
            id=f"tc-{at}",
            name=call.name,
            arguments=msgspec.json.encode(call.arguments).decode(),
        )
        for at, call in enumerate(calls)
    ]
    return Turn("assistant", "", calls=tuple(written))


def read(dialect: Dialect, answer: str) -> list[tuple[str, object]]:
    """Read an answer that holds calls and nothing else."""
    parser = BlockParser(dialect.regions)
    said = [*parser.feed(answer), *parser.finish()]
    assert all(isinstance(each, ToolUse) for each in said), said
    return [(each.name, each.input) for each in said if isinstance(each, ToolUse)]
