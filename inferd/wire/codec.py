"""Frames to requests, responses to frames: the only place that knows it is JSON."""

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from inferd.errors import FrameTooLargeError, InvalidFrameError
from inferd.limits import MAX_FRAME_BYTES, MAX_ID_CHARS
from inferd.wire.blocks import BlocksRequest, refuse_empty
from inferd.wire.commands import Command, Reply
from inferd.wire.repeats import refuse_repeats
from inferd.wire.requests import (
    CancelLine,
    EmbedRequest,
    GenerateRequest,
    RerankRequest,
)
from inferd.wire.responses import (
    BlocksResponse,
    EmbeddingsFrame,
    EmbedResponse,
    RerankResponse,
    Response,
    TextResponse,
)
from inferd.wire.speech import AppendLine, refuse_unclear
from inferd.wire.status import AnyStatus, StatusFrame
from inferd.wire.unknown import decode_with_unknowns, is_about_a_tag

T = TypeVar("T")
Request = GenerateRequest | BlocksRequest | EmbedRequest | RerankRequest
Q = TypeVar("Q", bound=Request | CancelLine | AppendLine)

DECODE_FAILURES: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""All that is raised on bytes that are not what they should be."""


class _Kind(Struct):
    """A line that may be about a request."""

    type: str = ""


_GENERATE: Final = msgspec.json.Decoder(GenerateRequest)
_BLOCKS: Final = msgspec.json.Decoder(BlocksRequest)
_EMBED: Final = msgspec.json.Decoder(EmbedRequest)
_RERANK: Final = msgspec.json.Decoder(RerankRequest)
_KIND: Final = msgspec.json.Decoder(_Kind)
_CANCEL: Final = msgspec.json.Decoder(CancelLine)
_APPEND: Final = msgspec.json.Decoder(AppendLine)
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


def decode_generate(frame: bytes) -> GenerateRequest:
    """Read a v1 generation request.

    Raises:
        InvalidFrameError: not JSON, a wrong type, a missing field, an unknown role, a
            number outside u32, or the same field twice.
    """
    return _request(_GENERATE.decode, frame, GenerateRequest)


def decode_blocks(frame: bytes) -> BlocksRequest:
    """Read a v2 generation request; raises as ``decode_generate`` does."""

    def decode(frame: bytes) -> BlocksRequest:
        try:
            request = _BLOCKS.decode(frame)
        except msgspec.ValidationError as error:
            if not is_about_a_tag(error):
                raise
            request = decode_with_unknowns(frame)
        refuse_empty(request.attachments)
        return request

    return _request(decode, frame, BlocksRequest)


def decode_embed(frame: bytes) -> EmbedRequest:
    """Read an embed request; raises as ``decode_generate`` does."""
    return _request(_EMBED.decode, frame, EmbedRequest)


def decode_rerank(frame: bytes) -> RerankRequest:
    """Read a rerank request; raises as ``decode_generate`` does."""
    return _request(_RERANK.decode, frame, RerankRequest)


def decode_cancel(frame: bytes) -> CancelLine | None:
    """Read a cancel line; ``None`` for a line of another kind, whatever it is.

    Raises:
        InvalidFrameError: it is one, and its id is no string.
    """
    return _request(_CANCEL.decode, frame, CancelLine) if _is("cancel", frame) else None


def decode_append(frame: bytes) -> AppendLine | None:
    """Read a line of v2 that appends; ``None`` for a line of another kind.

    Raises:
        InvalidFrameError: it is one, and lacks a field, has one of a wrong type, or has
            both of ``bytes`` and ``fd``, or neither of them nor an end.
    """

    def decode(frame: bytes) -> AppendLine:
        line = _APPEND.decode(frame)
        refuse_unclear(line)
        return line

    return _request(decode, frame, AppendLine) if _is("append", frame) else None


def _is(kind: str, frame: bytes) -> bool:
    """Tell whether a line is of a kind: to look for the word in it would take longer."""
    try:
        return _KIND.decode(frame).type == kind
    except DECODE_FAILURES:
        return False


def decode_command(frame: bytes) -> Command:
    """Read a line that came in by the admin socket; raises as ``decode_generate`` does."""

    def read(frame: bytes) -> Command:
        command = _COMMAND.decode(frame)
        refuse_repeats(frame, Command)
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
        refuse_repeats(frame, kind)
        return request

    return _read(read, frame)


def _read(decode: Callable[[bytes], T], frame: bytes) -> T:
    try:
        return decode(frame)
    except RecursionError as error:
        raise InvalidFrameError("JSON is nested too deeply") from error
    except UnicodeDecodeError as error:
        raise InvalidFrameError("a text is not UTF-8") from error
    except DECODE_FAILURES as error:
        raise InvalidFrameError(str(error)) from error


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
    """Write one frame with its newline.

    Raises:
        FrameTooLargeError: the frame reaches the cap.
    """
    frame = _ENCODER.encode(message)
    if len(frame) >= MAX_FRAME_BYTES:
        raise FrameTooLargeError(f"frame exceeds {MAX_FRAME_BYTES} byte cap")
    return frame + b"\n"


def encode_in_parts(frame: EmbeddingsFrame, embeddings: Iterable[bytes]) -> list[bytes]:
    """Write a frame without copying its vectors: 64 MiB of them take 50 ms and more.

    Args:
        frame: with an empty array of vectors.
        embeddings: parts that, joined, are the array.

    Raises:
        FrameTooLargeError: the frame reaches the cap.
    """
    # No name in it can spell what is looked for: quotes in names are escaped.
    head, empty, tail = encode(frame).partition(b'"embeddings":[]')
    parts = [head, empty[:-2], *embeddings, tail]
    if sum(map(len, parts)) > MAX_FRAME_BYTES:  # its newline included
        raise FrameTooLargeError(f"frame exceeds {MAX_FRAME_BYTES} byte cap")
    return parts


def decode_text_response(frame: bytes) -> TextResponse:
    """Read what a daemon answered on the v1 socket.

    Raises:
        InvalidFrameError: it is no response of this protocol.
    """
    return _read(_TEXT_RESPONSE.decode, frame)


def decode_blocks_response(frame: bytes) -> BlocksResponse:
    """Read what a daemon answered on the v2 socket; raises as the one for v1 does."""
    return _read(_BLOCKS_RESPONSE.decode, frame)


def decode_embed_response(frame: bytes) -> EmbedResponse:
    """Read what a daemon answered on the embed socket; raises as the one for v1 does."""
    return _read(_EMBED_RESPONSE.decode, frame)


def decode_rerank_response(frame: bytes) -> RerankResponse:
    """Read what a daemon answered on the rerank socket; raises as the one for v1 does."""
    return _read(_RERANK_RESPONSE.decode, frame)


def decode_status(frame: bytes) -> AnyStatus:
    """Read what an admin socket said; raises as the one for v1 does."""
    return _read(_STATUS.decode, frame)


def decode_reply(frame: bytes) -> Reply:
    """Read what an admin socket answered; raises as the one for v1 does."""
    return _read(_REPLY.decode, frame)
