"""Refuse a field that stands twice: the wire does, and msgspec takes the last one."""

import json
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from inferd.errors import InvalidFrameError
from inferd.limits import REPEATS_CHECKED_BYTES
from inferd.wire import blocks
from inferd.wire.requests import ChatMessage

_BLOCKS: Final = (
    blocks.TextBlock,
    blocks.ImageBlock,
    blocks.ToolUseBlock,
    blocks.ToolResultBlock,
)
_ATTACHMENTS: Final = (blocks.ImageAttachment, blocks.AudioAttachment)


def _names(*types: type[Struct]) -> frozenset[str]:
    """Collect the fields of all of these, their tags among them."""
    tags = {each.__struct_config__.tag_field for each in types}
    fields = {name for each in types for name in each.__struct_encode_fields__}
    return frozenset(fields | {tag for tag in tags if tag})


_MEMBERS: Final[Mapping[str, frozenset[str]]] = {
    "messages": _names(ChatMessage, blocks.Message),
    "content": _names(*_BLOCKS),
    "attachments": _names(*_ATTACHMENTS),
    "tools": _names(blocks.Tool),
}
"""The fields of the objects in an array, by the array's own name."""

_PARTS: Final[Mapping[str, frozenset[str]]] = {
    "response_format": _names(blocks.ResponseFormat),
    "tool_choice": _names(blocks.NamedTool),
}
"""The fields of an object, by the object's own name."""

_NESTED: Final = frozenset[str]().union(*_MEMBERS.values(), *_PARTS.values())


def refuse_repeats(frame: bytes, request: type[Struct]) -> None:
    """Refuse a known field that stands twice in one object of a request.

    The frame is one that has been read already. One so long that reading it again would
    hold up everybody is let through, and so is a key spelt with escapes: there the last
    one counts.

    Raises:
        InvalidFrameError: naming the field.
        UnicodeDecodeError: what nobody read the first time is no UTF-8.
        RecursionError: it is nested as deeply as can just be read once.
    """
    names = _names(request)
    if len(frame) <= REPEATS_CHECKED_BYTES and _may_repeat(frame, names):
        # Numbers stay text: Python refuses to read integers of thousands of digits.
        pairs = json.loads(
            frame, object_pairs_hook=_Pairs, parse_int=str, parse_float=str
        )
        _check(pairs, names)


def _may_repeat(frame: bytes, names: frozenset[str]) -> bool:
    """Tell, in a pass of C, whether any field's name stands twice at all."""
    return any(frame.count(f'"{name}"'.encode()) > 1 for name in names | _NESTED)


class _Pairs(list[tuple[str, object]]):
    """The members of a JSON object, in order, repeats and all."""


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
            for each in value:
                if isinstance(each, _Pairs):
                    _check(each, _MEMBERS[name])
