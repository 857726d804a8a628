"""Read a v2 request that has blocks or attachments of types nobody here knows.

msgspec refuses such a request as a whole. The wire keeps the connection and says which
part it is, so the parts are read one by one. Any other fault is a fault here as well.
"""

from typing import Final

import msgspec
from msgspec import Raw, Struct

from inferd.errors import InvalidFrameError
from inferd.limits import MAX_BLOCK_DEPTH, MAX_BLOCKS
from inferd.wire import blocks
from inferd.wire.blocks import Attachment, Block, BlocksRequest, Message, Options, Tool
from inferd.wire.requests import Role


class _Typed(Struct):
    """Any block."""

    type: str


class _Kinded(Struct):
    """Any attachment."""

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
    """Every part has a tag: checked first, while nothing large is kept."""

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


def is_about_a_tag(error: msgspec.ValidationError) -> bool:
    """Tell whether msgspec refused a request for a type that nobody knows."""
    text = str(error)
    return text.startswith("Invalid value") and text.endswith((".type`", ".kind`"))


def decode_with_unknowns(frame: bytes) -> BlocksRequest:
    """Read a request, unknown parts as ``UnknownBlock`` and ``UnknownAttachment``.

    Raises:
        DecodeError: it has another fault.
        InvalidFrameError: it is nested too deeply to be read so, or has too many blocks.
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
    # Its parts at once: to try the whole first would read all of it at every level.
    result = _RESULT.decode(raw)
    return blocks.ToolResultBlock(
        result.tool_call_id, [_block(each, depth + 1) for each in result.content]
    )


def _deep_result(raw: Raw) -> Block:
    try:
        return _BLOCK.decode(raw)
    except msgspec.ValidationError as error:
        if not is_about_a_tag(error):
            raise
    raise InvalidFrameError(f"blocks are nested over {MAX_BLOCK_DEPTH} deep")


def _attachment(raw: Raw) -> Attachment:
    if _KINDED.decode(raw).kind not in _ATTACHMENT_KINDS:
        return blocks.UnknownAttachment()
    return _ATTACHMENT.decode(raw)
