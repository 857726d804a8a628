"""Helpers shared by renderers: JSON, tool declarations, and the order of calls."""

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile

from msgspec.structs import replace

from inferd.backend.job import PastCall, ToolSpec, Turn
from inferd.dialects.step_limit import step


def to_json(value: object, *, indent: int | None = None) -> str:
    """Encode JSON as templates do: unescaped, with a space after comma and colon."""
    text = dump_json(value, indent=indent)
    return text.encode(errors="replace").decode()  # replaces lone surrogates


def dump_json(
    value: object,
    *,
    indent: int | str | None = None,
    ensure_ascii: bool = False,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Encode JSON as ``json.dumps`` does; with an indent, characters count as steps.

    Indentation of nested values is not limited by the size of the input.

    Raises:
        TooMuchWorkError: the result is too long.
    """
    encoder = json.JSONEncoder(
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )
    if indent is None:
        return encoder.encode(value)
    return "".join(_counted(encoder.iterencode(value)))


def _counted(pieces: Iterable[str]) -> Iterator[str]:
    for each in pieces:
        step(len(each))
        yield each


def parse_json(text: str) -> object:
    """Parse JSON; return the text itself if it is invalid."""
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value


def arguments_of(call: PastCall) -> str:
    """Return the arguments of a call as one line of JSON."""
    return to_json(parse_json(call.arguments))


def declaration(tool: ToolSpec) -> dict[str, object]:
    """Return a tool's declaration in the common (OpenAI) format."""
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": parse_json(tool.input_schema),
    }
    return {"type": "function", "function": function}


def split_parallel_calls(turns: Sequence[Turn]) -> Iterator[Turn]:
    """Split turns of several calls into one turn per call, followed by its results.

    The text stays with the first call; results that answer none of them come last.
    """
    at = 0
    while at < len(turns):
        turn = turns[at]
        at += 1
        if len(turn.calls) > 1:
            results = [*takewhile(lambda each: each.role == "tool", turns[at:])]
            at += len(results)
            yield from _split(turn, results)
        else:
            yield turn


def _split(turn: Turn, results: list[Turn]) -> Iterator[Turn]:
    text = turn.text
    by_call: dict[str, list[Turn]] = {}
    for each in results:
        by_call.setdefault(each.call_id, []).append(each)
    for call in turn.calls:
        yield replace(turn, text=text, calls=(call,))
        text = ""
        yield from by_call.pop(call.id, ())
    yield from (each for each in results if each.call_id in by_call)
