"""Reject duplicate fields, as the protocol requires; msgspec takes the last one."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

from msgspec import Struct

from inferd.errors import InvalidFrameError
from inferd.limits.protocol import REPEATS_CHECKED_BYTES
from inferd.wire import blocks
from inferd.wire.requests import ChatMessage

_BLOCKS: Final = (
    blocks.TextBlock,
    blocks.ImageBlock,
    blocks.ToolUseBlock,
    blocks.ToolResultBlock,
)
_ATTACHMENTS: Final = (blocks.ImageAttachment, blocks.AudioAttachment)


@cache
def _names(*types: type[Struct]) -> frozenset[str]:
    """Return the field names of several types, including their tag fields."""
    tags = {kind.__struct_config__.tag_field for kind in types}
    fields = {name for kind in types for name in kind.__struct_encode_fields__}
    return frozenset(fields | {tag for tag in tags if tag})


_MEMBERS: Final[Mapping[str, frozenset[str]]] = {
    "messages": _names(ChatMessage, blocks.Message),
    "content": _names(*_BLOCKS),
    "attachments": _names(*_ATTACHMENTS),
    "tools": _names(blocks.Tool),
}
"""Fields of the objects in an array, by the name of the array."""

_PARTS: Final[Mapping[str, frozenset[str]]] = {
    "response_format": _names(blocks.ResponseFormat),
    "tool_choice": _names(blocks.NamedTool),
}
"""Fields of an object, by the name of the object."""

_NESTED: Final = frozenset[str]().union(*_MEMBERS.values(), *_PARTS.values())


def refuse_duplicates(frame: bytes, request: type[Struct]) -> None:
    """Reject a known field that occurs twice in one object of a request.

    Not checked are frames longer than ``REPEATS_CHECKED_BYTES``, as decoding them again
    would block the event loop, and keys spelled with escapes: there the last one counts.

    Args:
        frame: a frame that has been decoded already.
        request: its type.

    Raises:
        InvalidFrameError: a field is duplicate; the text names it.
        UnicodeDecodeError: a part that the first decoding skipped is not UTF-8.
        RecursionError: it is nested more deeply than this decoder allows.
    """
    if len(frame) <= REPEATS_CHECKED_BYTES and _may_repeat(frame, request):
        # Numbers stay strings: Python rejects integers of thousands of digits.
        pairs = json.loads(
            frame, object_pairs_hook=_Pairs, parse_int=str, parse_float=str
        )
        _check(pairs, _names(request))


def _may_repeat(frame: bytes, request: type[Struct]) -> bool:
    """Return whether the name of any field occurs twice; a quick scan without decoding."""
    return any(frame.count(name) > 1 for name in _quoted_names(request))


@cache
def _quoted_names(request: type[Struct]) -> tuple[bytes, ...]:
    """List the names to look for, short ones first: nearly all that repeat are short."""
    names = sorted(_names(request) | _NESTED, key=lambda name: (len(name), name))
    return tuple(f'"{name}"'.encode() for name in names)


class _Pairs(list[tuple[str, object]]):
    """The members of a JSON object in order, including duplicates."""


def _check(pairs: Sequence[tuple[str, object]], names: frozenset[str]) -> None:
    seen: set[str] = set()
    for name, value in pairs:
        if name not in names:
            continue
        if name in seen:
            raise InvalidFrameError(f"duplicate field `{name}`")
        seen.add(name)
        if name in _PARTS and isinstance(value, _Pairs):
            _check(value, _PARTS[name])
        if name in _MEMBERS and isinstance(value, list):
            for item in value:
                if isinstance(item, _Pairs):
                    _check(item, _MEMBERS[name])
