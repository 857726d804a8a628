"""What a client may send on the v2 socket: conversations of typed content blocks.

A block or attachment of a type that nobody knows reads as ``UnknownBlock`` or
``UnknownAttachment``; ``resolve`` refuses it, by name and with the request's id.
"""

from collections.abc import Iterable
from typing import Annotated

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from inferd.errors import InvalidFrameError
from inferd.wire.requests import U32, Role

ANY_JSON = Meta(extra_json_schema={"description": "Any JSON value."})
"""Kept as it was written: it may be large, and nobody here looks into it."""
AnyJson = Annotated[Raw, ANY_JSON]


class TextBlock(Struct, frozen=True, tag="text", tag_field="type"):
    """Text; may be empty."""

    text: str


class ImageBlock(Struct, frozen=True, tag="image", tag_field="type"):
    """An image of the attachments table."""

    attachment_id: str


class AudioBlock(Struct, frozen=True, tag="audio", tag_field="type"):
    """A recording of the attachments table."""

    attachment_id: str


class VideoBlock(Struct, frozen=True, tag="video", tag_field="type"):
    """A video of the attachments table."""

    attachment_id: str


class ToolUseBlock(Struct, frozen=True, tag="tool_use", tag_field="type"):
    """A call that the assistant made in an earlier turn."""

    tool_call_id: str
    name: str
    input: AnyJson


class ToolResultBlock(Struct, frozen=True, tag="tool_result", tag_field="type"):
    """What a tool answered; may be empty."""

    tool_call_id: str
    content: list["Block"]


class UnknownBlock(Struct, frozen=True, tag="unknown", tag_field="type"):
    """A block of a type that this version does not know."""


MediaBlock = ImageBlock | AudioBlock | VideoBlock
Block = (
    TextBlock
    | ImageBlock
    | AudioBlock
    | VideoBlock
    | ToolUseBlock
    | ToolResultBlock
    | UnknownBlock
)


class Message(Struct, frozen=True):
    """One turn of a conversation."""

    role: Role
    content: list[Block]


class ImageAttachment(Struct, frozen=True, tag="image", tag_field="kind"):
    """Pixels that the client has decoded."""

    id: str
    width: U32
    height: U32
    bytes: str | None = None
    """Base64 of ``width * height * 3`` RGB octets."""
    fd: U32 | None = None
    """In place of ``bytes``: which of the descriptors that came with the line, from 0 on,
    is that of a sealed memfd with the octets."""


class AudioAttachment(Struct, frozen=True, tag="audio", tag_field="kind"):
    """Samples that the client has decoded."""

    id: str
    sample_rate: U32
    """Samples a second."""
    bytes: str | None = None
    """Base64 of little-endian 32-bit floats, one channel."""
    fd: U32 | None = None
    """In place of ``bytes``: which of the descriptors that came with the line, from 0 on,
    is that of a sealed memfd with the floats."""
    open: bool = False
    """True: more comes in ``append`` lines; ``bytes`` and ``fd`` may both be left out."""


class VideoAttachment(Struct, frozen=True, tag="video", tag_field="kind"):
    """Reserved."""

    id: str
    bytes: str


class UnknownAttachment(Struct, frozen=True, tag="unknown", tag_field="kind"):
    """An attachment of a kind that this version does not know."""


Attachment = ImageAttachment | AudioAttachment | VideoAttachment | UnknownAttachment


class Tool(Struct, frozen=True):
    """A function that the model may ask for."""

    name: str
    description: str
    input_schema: AnyJson


class NamedTool(Struct, frozen=True):
    """A choice of one tool."""

    name: str


class ResponseFormat(Struct, frozen=True, kw_only=True):
    """What the answer has to look like."""

    type: str
    """``json_schema``, ``regex``, ``gbnf`` or ``lark``."""
    schema: AnyJson | UnsetType = UNSET
    pattern: str | None = None
    grammar: str | None = None


class Options(Struct, frozen=True, kw_only=True):
    """All of a v2 request but its content."""

    id: str = ""
    """Echoed on every frame of the answer."""
    temperature: float | None = None
    """0 to 2; 0 always takes the likeliest token. Default: the model's, else 1.0."""
    top_p: float | None = None
    """Above 0, up to 1: keep the likeliest tokens of this total probability. Default:
    the model's, else 0.95."""
    top_k: U32 | None = None
    """Keep this many of the likeliest tokens; 0 keeps all. Default: the model's, else 64."""
    min_p: float | None = None
    """0 to 1: drop tokens less likely than this share of the likeliest. Default: the
    model's, else 0."""
    repeat_penalty: float | None = None
    """Above 0, up to 2: divides the score of recent tokens. Default 1."""
    presence_penalty: float | None = None
    """-2 to 2: taken from the score of each recent token once. Default 0."""
    frequency_penalty: float | None = None
    """-2 to 2: taken from the score of recent tokens each time they occur. Default 0."""
    logit_bias: dict[str, float] | None = None
    """Token ids, in decimal, to what is added to their score: -100 to 100."""
    seed: U32 | None = None
    """Of the sampler, 0 to 4294967294; omitted: drawn, and told in ``done``."""
    max_tokens: U32 | None = None
    """Longest answer in tokens. Default 1000."""
    min_tokens: U32 | None = None
    """Tokens before which the model cannot end its turn. Default 0."""
    stop: list[str] | None = None
    """Up to 16 texts of 1 to 256 bytes, each of which ends the answer and is left out."""
    stop_token_ids: list[U32] | None = None
    """Up to 64 tokens, each of which ends the answer and is left out."""
    logprobs: U32 | None = None
    """1 to 20: tell each token's log probability, and those of so many alternatives."""
    response_format: ResponseFormat | None = None
    """What the answer has to look like."""
    tool_choice: str | NamedTool | None = None
    """``auto``, ``required``, ``none``, or the one tool to call. Default ``auto``."""
    thinking: bool | None = None
    """True: ask for a reasoning trace."""
    stream: bool | None = None
    """False: each run of text or thinking as one whole frame. Default true."""
    priority: int | None = None
    """-10 to 10: orders a caller's own waiting requests, higher first. Default 0."""
    deadline_ms: U32 | None = None
    """Milliseconds, at least 1, that waiting and running may take together."""
    cache: str | None = None
    """``auto``, ``off`` or ``discard``: use of cached prefixes. Default ``auto``."""
    prefill_only: bool | None = None
    """True: read the prompt and write nothing."""
    language: str | None = None
    """Of speech to be written down: a code such as ``de``, or ``auto`` to find out.
    Default ``auto``."""
    translate: bool | None = None
    """True: write speech down in English, whatever its language. Default false."""
    timestamps: str | None = None
    """Of speech: ``segment`` or ``word``: what each piece of its text is. Default
    ``segment``."""
    progress: bool | None = None
    """True: ``status`` frames tell the place in the queue and how far the prompt is."""


class BlocksRequest(Options, frozen=True, kw_only=True):
    """A v2 generation request, as it came."""

    messages: list[Message]
    """The conversation, oldest first."""
    attachments: list[Attachment] = []
    """What blocks refer to; ids are unique."""
    tools: list[Tool] = []
    """What the model may call; names are unique."""


def refuse_empty(attachments: Iterable[Attachment]) -> None:
    """Refuse an attachment that has no bytes, and no other way for them to come.

    Raises:
        InvalidFrameError: there is one.
    """
    for index, each in enumerate(attachments):
        match each:
            case (
                ImageAttachment(bytes=None, fd=None)
                | AudioAttachment(bytes=None, fd=None, open=False)
            ):
                raise InvalidFrameError(
                    f"Object missing required field `bytes` - at `$.attachments[{index}]`"
                )
            case _:
                pass
