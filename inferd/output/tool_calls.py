"""What a model writes between its tool-call markers, to a call or to nothing."""

from typing import Final

import msgspec
from msgspec import Struct

TOOL_CALL_MAX_DEPTH: Final = 100
"""Objects and arrays inside each other in arguments. Common JSON readers stop at 128, of
which a frame takes two: what is deeper could not be read where it is sent."""

Arguments = dict[str, object]


class WrittenCall(Struct, frozen=True):
    """A call as models write it; other fields are ignored."""

    name: str
    arguments: Arguments | str | None = None
    """An object, or the text of one."""
    parameters: Arguments | str | None = None
    """What some models call ``arguments``."""


def read_tool_call(text: str) -> tuple[str, Arguments] | None:
    """Give the name and the arguments of a call, or ``None`` if it is not plainly one.

    Args:
        text: JSON, ``{"name": "f", "arguments": {}}``; or with ``parameters`` instead, or
            with the object as text. A call with both, or with neither, is not plain.
    """
    try:
        call = msgspec.json.decode(text, type=WrittenCall)
        arguments = _arguments(call)
    except (ValueError, RecursionError):
        return None
    if not call.name or arguments is None or _is_too_deep(arguments):
        return None
    return call.name, arguments


def _arguments(call: WrittenCall) -> Arguments | None:
    given = [each for each in (call.arguments, call.parameters) if each is not None]
    match given:
        case [str() as text]:
            return msgspec.json.decode(text, type=Arguments)
        case [dict() as arguments]:
            return arguments
        case _:
            return None


def _is_too_deep(arguments: Arguments) -> bool:
    level: list[object] = [arguments]
    for _ in range(TOOL_CALL_MAX_DEPTH):
        level = [item for value in level for item in _nested(value)]
    return bool(level)


def _nested(value: object) -> list[object]:
    match value:
        case dict():
            items = list(value.values())
        case list():
            items = value
        case _:
            items = []
    return [item for item in items if isinstance(item, (dict, list))]
