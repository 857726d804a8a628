"""The frames of a daemon's answers, as far as they are read; unknown fields are passed over."""

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Raw, Struct

from inferd.errors import ErrorCode
from inferd.ipc.worker import Overflow
from inferd.wire.offered_facts import OfferedFacts
from inferd.wire.responses import Logprob
from inferd.worker.remote.conversation.reader import decode_part
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


def count_of(number: int | None) -> int:
    """Return a count that the remote tells, within its bounds."""
    return min(max(number or 0, 0), _MOST)


def _error_of(frame: Frame) -> RemoteError:
    """Make the error of an error frame: whose fault, and when to ask again."""
    text = quote(frame.message)
    code = frame.code
    if code == ErrorCode.QUEUE_FULL:
        return RemoteError(
            "the remote's queue is full",
            retry_after_ms=_retry_of(frame),
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
        retry_after_ms=_retry_of(frame),
        is_configuration=code in _BY_CONFIGURATION,
        is_limit=code == ErrorCode.CANCELLED,
    )


def _retry_of(frame: Frame) -> int | None:
    return None if frame.retry_after_ms is None else count_of(frame.retry_after_ms)


def _overflow_of(frame: Frame) -> Overflow | None:
    prompt, n_ctx = frame.prompt_tokens, frame.n_ctx
    if prompt is None or n_ctx is None or not 0 < n_ctx <= prompt <= _MOST:
        return None
    return Overflow(prompt_tokens=prompt, answer_tokens=1, n_ctx=n_ctx)
