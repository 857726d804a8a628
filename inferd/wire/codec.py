"""Codec between frames and messages: the only place that knows the encoding is JSON."""

import re
from collections.abc import Callable, Iterable
from typing import Final, TypeVar, get_args

import msgspec
from msgspec import Struct

from inferd.errors import FrameTooLargeError, InvalidFrameError
from inferd.limits.protocol import MAX_FRAME_BYTES, MAX_ID_CHARS
from inferd.wire.blocks import BlocksRequest, refuse_empty, refuse_no_prompt
from inferd.wire.commands import Command, Reply
from inferd.wire.duplicate_fields import refuse_duplicates
from inferd.wire.requests import (
    CancelLine,
    DescribeRequest,
    EmbedRequest,
    GenerateRequest,
    Request,
    RerankRequest,
    Role,
    refuse_no_texts,
)
from inferd.wire.responses import (
    BlocksResponse,
    EmbeddingsFrame,
    EmbedResponse,
    RerankResponse,
    Response,
    TextResponse,
)
from inferd.wire.speech import AppendLine, refuse_ambiguous
from inferd.wire.status import AnyStatus, StatusFrame
from inferd.wire.unknown_types import decode_with_unknowns, is_unknown_tag

T = TypeVar("T")
R = TypeVar("R", bound=Request)
Q = TypeVar("Q", bound=Request | CancelLine | AppendLine)

DECODE_FAILURES: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""All exceptions that decoding malformed bytes can raise."""
_EXPECTED: Final = re.compile(r"Expected `[^`]*`")

_ROLES: Final = f"; allowed: {', '.join(get_args(Role))}"
_TOOL_ROLE: Final = "; in v2 the result of a tool is a tool_result block of the user"
_CONTENT: Final = (
    '; content is an array of blocks, such as [{"type":"text","text":"hello"}]'
)


class _Kind(Struct):
    """Any line, of which only the type is decoded."""

    type: str = ""


_BLOCKS: Final = msgspec.json.Decoder(BlocksRequest)
_EMBED: Final = msgspec.json.Decoder(EmbedRequest)
_KIND: Final = msgspec.json.Decoder(_Kind)
_CANCEL: Final = msgspec.json.Decoder(CancelLine)
_APPEND: Final = msgspec.json.Decoder(AppendLine)
_DESCRIBE: Final = msgspec.json.Decoder(DescribeRequest)
_COMMAND: Final = msgspec.json.Decoder(Command)

_TEXT_RESPONSE: Final[msgspec.json.Decoder[TextResponse]] = msgspec.json.Decoder(
    TextResponse
)
_BLOCKS_RESPONSE: Final[msgspec.json.Decoder[BlocksResponse]] = msgspec.json.Decoder(
    BlocksResponse
)
_EMBED_RESPONSE: Final[msgspec.json.Decoder[EmbedResponse]] = msgspec.json.Decoder(
    EmbedResponse
)
_RERANK_RESPONSE: Final[msgspec.json.Decoder[RerankResponse]] = msgspec.json.Decoder(
    RerankResponse
)
_STATUS: Final = msgspec.json.Decoder(AnyStatus)
_REPLY: Final = msgspec.json.Decoder(Reply)
_ENCODER: Final = msgspec.json.Encoder()


# --- what clients send ------------------------------------------------------------------


def request_decoder(kind: type[R]) -> Callable[[bytes], R]:
    """Make the decoder of one type of requests.

    Returns:
        A function that raises ``InvalidFrameError`` if the line is not JSON, or has a wrong
        type, a missing field, an unknown role, a number outside u32, or a duplicate field.
    """
    decoder = msgspec.json.Decoder(kind)

    def decode(frame: bytes) -> R:
        return _request(decoder.decode, frame, kind)

    return decode


decode_generate: Final = request_decoder(GenerateRequest)
"""Decodes a v1 generation request."""
decode_rerank: Final = request_decoder(RerankRequest)
"""Decodes a rerank request."""


def decode_blocks(frame: bytes) -> BlocksRequest:
    """Decode a v2 generation request; raises as ``decode_generate`` does."""

    def decode(frame: bytes) -> BlocksRequest:
        try:
            request = _BLOCKS.decode(frame)
        except msgspec.ValidationError as error:
            if not is_unknown_tag(error):
                raise
            request = decode_with_unknowns(frame)
        refuse_no_prompt(request)
        refuse_empty(request.attachments)
        return request

    return _request(decode, frame, BlocksRequest)


def decode_embed(frame: bytes) -> EmbedRequest:
    """Decode an embed request; raises as ``decode_generate`` does."""

    def decode(frame: bytes) -> EmbedRequest:
        request = _EMBED.decode(frame)
        refuse_no_texts(request)
        return request

    return _request(decode, frame, EmbedRequest)


def decode_aside(
    frame: bytes, *, takes_appends: bool
) -> CancelLine | AppendLine | DescribeRequest | None:
    """Decode a line that says its type; return ``None`` for one that is to be a request.

    Args:
        frame: the line.
        takes_appends: whether it may be an append, as in v2.

    Raises:
        InvalidFrameError: it is of such a type and lacks a field, or has one of a wrong type;
            or it is an append with both ``bytes`` and ``fd``, or neither of them nor ``end``.
    """
    match _type_of(frame):
        case "cancel":
            return _request(_CANCEL.decode, frame, CancelLine)
        case "append" if takes_appends:
            return _append(frame)
        case "describe":
            return _request(_DESCRIBE.decode, frame, DescribeRequest)
        case _:
            return None


def _append(frame: bytes) -> AppendLine:
    def decode(frame: bytes) -> AppendLine:
        line = _APPEND.decode(frame)
        refuse_ambiguous(line)
        return line

    return _request(decode, frame, AppendLine)


def _type_of(frame: bytes) -> str:
    """Read the type of a line; empty for one without, or that is not valid JSON.

    To search the line for the word would take longer.
    """
    try:
        return _KIND.decode(frame).type
    except DECODE_FAILURES:
        return ""


def decode_command(frame: bytes) -> Command:
    """Decode a line from the admin socket; raises as ``decode_generate`` does."""

    def read(frame: bytes) -> Command:
        command = _COMMAND.decode(frame)
        refuse_duplicates(frame, Command)
        return command

    return _read(read, frame)


def _request(decode: Callable[[bytes], Q], frame: bytes, kind: type[Q]) -> Q:
    def read(frame: bytes) -> Q:
        request = decode(frame)
        n_chars = len(request.id)
        if n_chars > MAX_ID_CHARS:
            raise InvalidFrameError(
                f"id has {n_chars} characters, at most {MAX_ID_CHARS} are allowed"
            )
        refuse_duplicates(frame, kind)
        return request

    return _read(read, frame)


def _read(decode: Callable[[bytes], T], frame: bytes) -> T:
    try:
        return decode(frame)
    except RecursionError as error:
        raise InvalidFrameError("JSON is nested too deeply") from error
    except UnicodeDecodeError as error:
        raise InvalidFrameError("a string is not valid UTF-8") from error
    except DECODE_FAILURES as error:
        message = str(error)
        raise InvalidFrameError(_plain_types(message) + _advice(message)) from error


def _plain_types(message: str) -> str:
    """Rewrite "Expected `int | null`" of msgspec as "Expected `int` or `null`"."""
    expected = _EXPECTED.match(message)
    if expected is None:
        return message
    types = expected[0].replace(" | ", "` or `")
    return types + message[expected.end() :]


def _advice(message: str) -> str:
    """Say what is allowed, where msgspec does not and clients of other servers differ."""
    if message.startswith("Invalid enum value") and message.endswith(".role`"):
        is_tool = message.startswith("Invalid enum value 'tool'")
        return _ROLES + (_TOOL_ROLE if is_tool else "")
    if message.startswith("Expected `array`") and message.endswith(".content`"):
        return _CONTENT
    return ""


# --- what the daemon sends --------------------------------------------------------------


def encode(
    message: Response
    | Request
    | CancelLine
    | AppendLine
    | StatusFrame
    | Command
    | Reply,
) -> bytes:
    """Encode a message as one frame, newline included.

    Raises:
        FrameTooLargeError: the frame exceeds ``MAX_FRAME_BYTES``.
    """
    frame = _ENCODER.encode(message)
    if len(frame) >= MAX_FRAME_BYTES:
        raise FrameTooLargeError(f"frame exceeds {MAX_FRAME_BYTES} byte cap")
    return frame + b"\n"


def encode_in_parts(frame: EmbeddingsFrame, embeddings: Iterable[bytes]) -> list[bytes]:
    """Encode a frame without copying its vectors; copying a large frame blocks the loop.

    Args:
        frame: with an empty array of vectors.
        embeddings: the JSON array of vectors, in parts.

    Raises:
        FrameTooLargeError: the frame exceeds ``MAX_FRAME_BYTES``.
    """
    # No string in the frame can contain this, as quotes in strings are escaped.
    head, empty, tail = encode(frame).partition(b'"embeddings":[]')
    parts = [head, empty[:-2], *embeddings, tail]
    if sum(map(len, parts)) > MAX_FRAME_BYTES:  # its newline included
        raise FrameTooLargeError(f"frame exceeds {MAX_FRAME_BYTES} byte cap")
    return parts


def decode_text_response(frame: bytes) -> TextResponse:
    """Decode a response from the v1 socket.

    Raises:
        InvalidFrameError: it is not a response of this protocol.
    """
    return _read(_TEXT_RESPONSE.decode, frame)


def decode_blocks_response(frame: bytes) -> BlocksResponse:
    """Decode a response from the v2 socket; raises as ``decode_text_response`` does."""
    return _read(_BLOCKS_RESPONSE.decode, frame)


def decode_embed_response(frame: bytes) -> EmbedResponse:
    """Decode a response from the embed socket; raises as ``decode_text_response`` does."""
    return _read(_EMBED_RESPONSE.decode, frame)


def decode_rerank_response(frame: bytes) -> RerankResponse:
    """Decode a response from the rerank socket; raises as ``decode_text_response`` does."""
    return _read(_RERANK_RESPONSE.decode, frame)


def decode_status(frame: bytes) -> AnyStatus:
    """Decode a status frame of the admin socket; raises as ``decode_text_response`` does."""
    return _read(_STATUS.decode, frame)


def decode_reply(frame: bytes) -> Reply:
    """Decode a reply of the admin socket; raises as ``decode_text_response`` does."""
    return _read(_REPLY.decode, frame)
