"""Parts of prompts that the APIs have in common: blocks, calls, tools and forms."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec import Raw

from inferd.bridge.translation.failures import BridgeError, Reason, invalid
from inferd.wire.blocks import Block, ResponseFormat, Tool
from inferd.wire.codec import DECODE_FAILURES

_NO_ARGUMENTS: Final[Mapping[str, object]] = {"type": "object", "properties": {}}
ANY_OBJECT: Final[Mapping[str, object]] = {"type": "object"}
"""The schema of any JSON object."""


def raw_json(value: object) -> Raw:
    """Write JSON anew: a line of the daemon may have no newline in it."""
    return Raw(msgspec.json.encode(value))


def some_blocks(blocks: Iterable[Block], place: str) -> list[Block]:
    """Return the blocks of a message that has to say something.

    Raises:
        BridgeError: there are none.
    """
    found = [*blocks]
    if not found:
        raise invalid(place, "must not be empty")
    return found


def call_arguments(text: str, place: str) -> Raw:
    """Read the arguments of a call that are written as a text; none are an object.

    Raises:
        BridgeError: they are no JSON.
    """
    try:
        return raw_json(msgspec.json.decode(text or "{}"))
    except DECODE_FAILURES as error:
        raise invalid(place, f"not JSON: {error}") from error


def unsupported_part(kind: str, place: str, *, noun: str = "parts") -> BridgeError:
    """Return the refusal of a part of a message of a kind that no route takes."""
    return BridgeError(
        Reason.UNSUPPORTED,
        f"{place}: {noun} of type {kind} are not supported",
        param=place,
    )


def to_tool(
    name: str, description: str | None, schema: Mapping[str, object] | None
) -> Tool:
    """Return a tool of the daemon; without a schema it has no arguments."""
    return Tool(name, description or "", raw_json(schema or _NO_ARGUMENTS))


def json_form(schema: Mapping[str, object]) -> ResponseFormat:
    """Return the form of an answer that satisfies a schema."""
    return ResponseFormat(type="json_schema", schema=raw_json(schema))
