"""Decode a v2 request with blocks or attachments of unknown types.

msgspec rejects such a request as a whole. The protocol requires that the connection stays
open and that the error names the part, so the parts are decoded one by one. Any other fault
is rejected here as well.
"""

from typing import Final

import msgspec
from msgspec import Raw, Struct

from inferd.errors import InvalidFrameError
from inferd.limits.protocol import MAX_BLOCK_DEPTH, MAX_BLOCKS
from inferd.wire import blocks
from inferd.wire.blocks import Attachment, Block, BlocksRequest, Message, Options, Tool
from inferd.wire.requests import Role


class _Typed(Struct):
    """Any block, of which only the type is decoded."""

    type: str


class _Kinded(Struct):
    """Any attachment, of which only the kind is decoded."""

    kind: str


class _Turn(Struct):
    role: Role
    content: list[Raw]


class _Result(Struct):
    tool_call_id: str
    content: list[Raw]


class _Outline(Options, kw_only=True, frozen=True):
    messages: list[_Turn]
    attachments: list[Raw] = msgspec.field(default_factory=list)
    tools: list[Tool] = msgspec.field(default_factory=list)


class _TypedTurn(Struct):
    content: list[_Typed]


class _Tags(Struct):
    """A request of which only tags are decoded: checked first, as it takes little memory."""

    messages: list[_TypedTurn]
    attachments: list[_Kinded] = []


_TAGS: Final = msgspec.json.Decoder(_Tags)
_OUTLINE: Final = msgspec.json.Decoder(_Outline)
_BLOCK: Final[msgspec.json.Decoder[Block]] = msgspec.json.Decoder(Block)
_ATTACHMENT: Final[msgspec.json.Decoder[Attachment]] = msgspec.json.Decoder(Attachment)
_TYPED: Final = msgspec.json.Decoder(_Typed)
_KINDED: Final = msgspec.json.Decoder(_Kinded)
_RESULT: Final = msgspec.json.Decoder(_Result)

_BLOCK_TYPES: Final = {"text", "image", "audio", "video", "tool_use", "tool_result"}
_ATTACHMENT_KINDS: Final = {"image", "audio", "video"}


def is_unknown_tag(error: msgspec.ValidationError) -> bool:
    """Return whether msgspec rejected a request because of an unknown type."""
    text = str(error)
    return text.startswith("Invalid value") and text.endswith((".type`", ".kind`"))


def decode_with_unknowns(frame: bytes) -> BlocksRequest:
    """Decode a request, unknown parts as ``UnknownBlock`` and ``UnknownAttachment``.

    Raises:
        DecodeError: the request has another fault.
        InvalidFrameError: it exceeds ``MAX_BLOCK_DEPTH`` or ``MAX_BLOCKS``.
    """
    _TAGS.decode(frame)
    outline = _OUTLINE.decode(frame)
    if sum(len(turn.content) for turn in outline.messages) > MAX_BLOCKS:
        raise InvalidFrameError(f"messages have more than {MAX_BLOCKS} blocks")
    options = {name: getattr(outline, name) for name in Options.__struct_fields__}
    return BlocksRequest(
        messages=[
            Message(turn.role, [_block(raw, 1) for raw in turn.content])
            for turn in outline.messages
        ],
        attachments=[_attachment(raw) for raw in outline.attachments],
        tools=outline.tools,
        **options,
    )


def _block(raw: Raw, depth: int) -> Block:
    kind = _TYPED.decode(raw).type
    if kind not in _BLOCK_TYPES:
        return blocks.UnknownBlock()
    if kind != "tool_result":
        return _BLOCK.decode(raw)
    if depth == MAX_BLOCK_DEPTH:
        return _deep_result(raw)
    # Decode its parts directly; trying the whole first would decode it at every level.
    result = _RESULT.decode(raw)
    return blocks.ToolResultBlock(
        result.tool_call_id, [_block(item, depth + 1) for item in result.content]
    )


def _deep_result(raw: Raw) -> Block:
    try:
        return _BLOCK.decode(raw)
    except msgspec.ValidationError as error:
        if not is_unknown_tag(error):
            raise
    raise InvalidFrameError(f"blocks are nested over {MAX_BLOCK_DEPTH} deep")


def _attachment(raw: Raw) -> Attachment:
    if _KINDED.decode(raw).kind not in _ATTACHMENT_KINDS:
        return blocks.UnknownAttachment()
    return _ATTACHMENT.decode(raw)
