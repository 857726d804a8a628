"""What renderers do alike: write JSON and tools, and put calls in order."""

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile

from msgspec.structs import replace

from inferd.dialects.effort import step
from inferd.job import Tool, ToolCall, Turn


def to_json(value: object, *, indent: int | None = None) -> str:
    """Write JSON as templates do: unescaped, and with a space after comma and colon."""
    text = dumped(value, indent=indent)
    return text.encode(errors="replace").decode()  # half a surrogate pair is no text


def dumped(
    value: object,
    *,
    indent: int | str | None = None,
    ensure_ascii: bool = False,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Write JSON as ``json.dumps`` does; where it indents, characters count as steps.

    Each line of what is deep is indented as far, so there is no bound in what was sent.

    Raises:
        TooMuchWorkError: it would be more than may be.
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


def parsed(text: str) -> object:
    """Read JSON; what is none stays the text that it is."""
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value


def arguments_of(call: ToolCall) -> str:
    """Give the arguments of a call as one line of JSON."""
    return to_json(parsed(call.arguments))


def declaration(tool: Tool) -> dict[str, object]:
    """Describe a tool in the shape that the field has agreed on."""
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": parsed(tool.input_schema),
    }
    return {"type": "function", "function": function}


def one_call_each(turns: Sequence[Turn]) -> Iterator[Turn]:
    """Split turns of several calls: each call comes with its results right after it.

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
