"""The frames of a daemon's answers, as far as they are read; unknown fields are passed over."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Raw, Struct

from inferd.errors import ErrorCode
from inferd.ipc.worker import Overflow
from inferd.wire.codec import DECODE_FAILURES
from inferd.wire.offered_facts import OfferedFacts
from inferd.wire.responses import Logprob
from inferd.worker.remote.conversation.reader import decode_part
from inferd.worker.remote.errors import (
    ReportedError,
    error_in,
    error_of,
    retry_after_ms,
)
from inferd.worker.remote.failure import RemoteError, quote
from inferd.worker.remote.inferd.request import REQUEST_ID

TERMINAL: Final = frozenset({"done", "embeddings", "rerank", "models", "error"})
_BY_REQUEST: Final = frozenset(
    {
        ErrorCode.INVALID_REQUEST,
        ErrorCode.FRAME_TOO_LARGE,
        ErrorCode.ATTACHMENT_UNSUPPORTED,
    }
)
_BY_CONFIGURATION: Final = frozenset(
    {
        ErrorCode.MODEL_NOT_FOUND,
        ErrorCode.PERMISSION_DENIED,
        ErrorCode.EMBED_UNSUPPORTED,
        ErrorCode.RERANK_UNSUPPORTED,
    }
)
_MOST: Final = 2**31 - 1


TokenId = Annotated[int, Meta(ge=0, lt=2**32)]


class Block(Struct):
    """A part of an answer."""

    type: str
    delta: str = ""
    name: str = ""
    input: Raw = Raw(b"{}")
    start_ms: int | None = None
    end_ms: int | None = None
    no_speech: float | None = None


class FrameUsage(Struct):
    """Tokens as the daemon counts them."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    is_estimate: bool = False


class FrameTranscription(Struct):
    """Facts about a transcript."""

    language: str = ""
    language_probability: float | None = None
    audio_ms: int = 0
    real_time_factor: float = 0.0


class Ranked(Struct):
    """A document's score."""

    index: int
    score: float


class Frame(Struct):
    """A frame of any type."""

    type: str
    id: str = ""
    block: Block | None = None
    logprobs: list[Logprob] = []
    token_ids: list[TokenId] = []
    end_token_id: TokenId | None = None
    usage: FrameUsage | None = None
    stop_reason: str = ""
    stop_token_id: int | None = None
    structure_complete: bool | None = None
    transcription: FrameTranscription | None = None
    embeddings: list[list[float]] | None = None
    results: list[Ranked] | None = None
    models: Sequence[OfferedFacts | str] | None = None
    code: str = ""
    message: str = ""
    prompt_tokens: int | None = None
    n_ctx: int | None = None
    retry_after_ms: int | None = None

    @property
    def is_terminal(self) -> bool:
        """Whether it ends the answer."""
        return self.type in TERMINAL


_FRAME: Final = msgspec.json.Decoder(Frame)


def read_frame(line: bytes) -> Frame:
    """Read a frame of the answer.

    Raises:
        RemoteError: it is none, or reports that the request failed.
    """
    frame = decode_part(_FRAME, line)
    if frame.type == "error":
        raise _error_of(frame)
    if frame.id != REQUEST_ID:
        raise RemoteError("the remote sent a frame of another request")
    return frame


def read_last(body: bytes, kind: str) -> Frame:
    """Read the frame of an answer that has one alone.

    Args:
        body: of the answer.
        kind: the type that the frame must have.

    Raises:
        RemoteError: it is none, of another type, or reports an error.
    """
    frame = read_frame(body)
    if frame.type != kind:
        raise RemoteError(f"the remote answers with a frame {quote(frame.type)!r}")
    return frame


def error_of_status(
    status: int, headers: Mapping[str, str], body: bytes, now: float
) -> RemoteError:
    """Make the error of a bridge's answer that is not 200: that of its frame, if it has one."""
    frame = _decoded(body)
    if frame is None or status in (401, 403):
        message = frame.message if frame else ""
        return error_of(status, headers, now, ReportedError(message))
    return _error_of(frame, retry_after_ms(headers, now))


def error_in_answer(data: bytes) -> RemoteError:
    """Make the error that an answer reports although its status was 200."""
    frame = _decoded(data)
    return error_in(ReportedError()) if frame is None else _error_of(frame)


def _decoded(data: bytes) -> Frame | None:
    """Read an error frame; ``None`` if it is none."""
    try:
        frame = _FRAME.decode(data)
    except DECODE_FAILURES:
        return None
    return frame if frame.type == "error" else None


def count_of(number: int | None) -> int:
    """Return a count that the remote tells, within its bounds."""
    return min(max(number or 0, 0), _MOST)


def _error_of(frame: Frame, after_ms: int | None = None) -> RemoteError:
    """Make the error of an error frame: whose fault, and when to ask again.

    Args:
        frame: with what the daemon says.
        after_ms: when to ask again, if the frame does not say it.
    """
    text = quote(frame.message)
    code = frame.code
    if frame.retry_after_ms is not None:
        after_ms = count_of(frame.retry_after_ms)
    if code == ErrorCode.QUEUE_FULL:
        return RemoteError(
            "the remote's queue is full",
            retry_after_ms=after_ms,
            is_limit=True,
        )
    if code in _BY_REQUEST:
        text = text.removeprefix("invalid request: ")
        return RemoteError(
            f"the remote refuses it: {text}",
            by_request=True,
            overflow=_overflow_of(frame),
        )
    return RemoteError(
        f"the remote failed: {text}",
        retry_after_ms=after_ms,
        is_configuration=code in _BY_CONFIGURATION,
        is_limit=code == ErrorCode.CANCELLED,
    )


def _overflow_of(frame: Frame) -> Overflow | None:
    prompt, n_ctx = frame.prompt_tokens, frame.n_ctx
    if prompt is None or n_ctx is None or not 0 < n_ctx <= prompt <= _MOST:
        return None
    return Overflow(prompt_tokens=prompt, answer_tokens=1, n_ctx=n_ctx)
