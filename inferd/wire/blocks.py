"""Requests on the v2 socket: conversations of typed content blocks.

A block or attachment of an unknown type is decoded as ``UnknownBlock`` or
``UnknownAttachment``, which ``resolve`` rejects with the request's id.
"""

from collections.abc import Iterable
from typing import Annotated

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from inferd.errors import InvalidFrameError
from inferd.wire.requests import U32, Request, Role

ANY_JSON = Meta(extra_json_schema={"description": "Any JSON value."})
"""JSON that is kept undecoded: it may be large, and the daemon does not read it here."""
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
    """The result of a tool call; may be empty."""

    tool_call_id: str
    content: list["Block"]


class UnknownBlock(Struct, frozen=True, tag="unknown", tag_field="type"):
    """A block of an unknown type."""


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
    """An image, decoded by the client to RGB pixels."""

    id: str
    width: U32
    height: U32
    bytes: str | None = None
    """Base64 of ``width * height * 3`` RGB octets."""
    fd: U32 | None = None
    """Instead of ``bytes``: index, from 0, of a file descriptor sent with the line; a sealed
    memfd with the octets."""


class AudioAttachment(Struct, frozen=True, tag="audio", tag_field="kind"):
    """A recording, decoded by the client to samples."""

    id: str
    sample_rate: U32
    """Samples per second."""
    bytes: str | None = None
    """Base64 of little-endian 32-bit floats, one channel."""
    fd: U32 | None = None
    """Instead of ``bytes``: index, from 0, of a file descriptor sent with the line; a sealed
    memfd with the floats."""
    open: bool = False
    """True: more samples follow in ``append`` lines; ``bytes`` and ``fd`` may be omitted."""


class VideoAttachment(Struct, frozen=True, tag="video", tag_field="kind"):
    """Reserved."""

    id: str
    bytes: str


class UnknownAttachment(Struct, frozen=True, tag="unknown", tag_field="kind"):
    """An attachment of an unknown kind."""


Attachment = ImageAttachment | AudioAttachment | VideoAttachment | UnknownAttachment


class Tool(Struct, frozen=True):
    """A function that the model may call."""

    name: str
    description: str
    input_schema: AnyJson


class NamedTool(Struct, frozen=True):
    """A ``tool_choice`` that names one tool."""

    name: str


class ResponseFormat(Struct, frozen=True, kw_only=True):
    """The structure that the text of the answer must have."""

    type: str
    """``json_schema``, ``regex``, ``gbnf`` or ``lark``."""
    schema: AnyJson | UnsetType = UNSET
    pattern: str | None = None
    grammar: str | None = None


class Options(Request, frozen=True, kw_only=True):
    """The options of a v2 request: all fields except its content."""

    id: str = ""
    """Echoed on every frame of the answer."""
    temperature: float | None = None
    """0 to 2; 0 always takes the most likely token. Default: the model's, else 1.0."""
    top_p: float | None = None
    """Above 0, up to 1: keep the most likely tokens of this total probability. Default:
    the model's, else 0.95."""
    top_k: U32 | None = None
    """Keep this many of the most likely tokens; 0 keeps all. Default: the model's, else
    64."""
    min_p: float | None = None
    """0 to 1: drop tokens less probable than this fraction of the most likely one. Default:
    the model's, else 0."""
    repeat_penalty: float | None = None
    """Above 0, up to 2: divides the score of recent tokens. Default 1."""
    presence_penalty: float | None = None
    """-2 to 2: subtracted once from the score of each recent token. Default 0."""
    frequency_penalty: float | None = None
    """-2 to 2: subtracted from the score of a recent token per occurrence. Default 0."""
    logit_bias: dict[str, float] | None = None
    """Maps token ids, in decimal, to a number added to their score: -100 to 100."""
    seed: U32 | None = None
    """Seed of the sampler, 0 to 4294967294; if omitted, a random one, reported in
    ``done``."""
    max_tokens: U32 | None = None
    """Longest answer in tokens. Default 1000."""
    min_tokens: U32 | None = None
    """Tokens before which the model cannot end its turn. Default 0."""
    stop: list[str] | None = None
    """Up to 16 strings of 1 to 256 bytes that end the answer; they are left out of it."""
    stop_token_ids: list[U32] | None = None
    """Up to 64 tokens that end the answer; they are left out of it."""
    logprobs: U32 | None = None
    """1 to 20: report the log probability of each token and of this many alternatives."""
    token_ids: bool | None = None
    """True: tell the ids of the tokens of the answer with its frames. Default false."""
    response_format: ResponseFormat | None = None
    """The structure that the text of the answer must have."""
    tool_choice: str | NamedTool | None = None
    """``auto``, ``required``, ``none``, or the one tool to call. Default ``auto``."""
    thinking: bool | None = None
    """True: ask for a reasoning trace."""
    stream: bool | None = None
    """False: send each run of text or thinking as one whole frame. Default true."""
    priority: int | None = None
    """-10 to 10: orders a caller's own waiting requests, higher first. Default 0."""
    deadline_ms: U32 | None = None
    """Milliseconds, at least 1, for waiting and running together."""
    cache: str | None = None
    """``auto``, ``off`` or ``discard``: use of cached prefixes. Default ``auto``."""
    prefill_only: bool | None = None
    """True: process the prompt and generate nothing."""
    language: str | None = None
    """Language of speech to transcribe: a code such as ``de``, or ``auto`` to detect it.
    Default ``auto``."""
    translate: bool | None = None
    """True: transcribe speech into English, whatever its language. Default false."""
    timestamps: str | None = None
    """Of a transcription: whether a text block is a ``segment`` or a ``word``. Default
    ``segment``."""
    speech_logprobs: bool | None = None
    """True: transcribe speech, and tell the log probability of each token. Default false."""
    progress: bool | None = None
    """True: send ``status`` frames with the position in the queue and the progress of the
    prompt."""


class BlocksRequest(Options, frozen=True, kw_only=True):
    """A v2 generation request, as received."""

    messages: list[Message] | UnsetType = UNSET
    """The conversation, oldest first; required unless ``input_tokens`` is given."""
    input_tokens: list[U32] | None = None
    """In place of ``messages``: 1 to 1,048,576 ids of the model's own tokens, the whole
    prompt. Nothing is added to it."""
    attachments: list[Attachment] = field(default_factory=list)
    """Media that blocks refer to; ids are unique."""
    tools: list[Tool] = field(default_factory=list)
    """Tools that the model may call; names are unique."""

    @property
    def conversation(self) -> list[Message]:
        """Its messages; none if its prompt is tokens."""
        return self.messages or []

    def counts(self) -> dict[str, int]:
        """Count the attachments and the tools."""
        return {"n_attachments": len(self.attachments), "n_tools": len(self.tools)}


def refuse_no_prompt(request: BlocksRequest) -> None:
    """Reject a request with neither ``messages`` nor ``input_tokens``.

    Raises:
        InvalidFrameError: it is such a request.
    """
    if request.messages is UNSET and request.input_tokens is None:
        raise InvalidFrameError("Object missing required field `messages`")


def refuse_empty(attachments: Iterable[Attachment]) -> None:
    """Reject an attachment with no source: neither ``bytes`` nor ``fd``, and not ``open``.

    Raises:
        InvalidFrameError: there is one.
    """
    for index, attachment in enumerate(attachments):
        match attachment:
            case (
                ImageAttachment(bytes=None, fd=None)
                | AudioAttachment(bytes=None, fd=None, open=False)
            ):
                raise InvalidFrameError(
                    f"Object missing required field `bytes` - at `$.attachments[{index}]`"
                )
            case _:
                pass
