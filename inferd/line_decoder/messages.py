"""Messages between the daemon and a line decoder process, as msgpack.

A message is preceded by its length, four bytes, little endian. A task is followed by the
bytes of the line, a result by its sections. The process sends the first message, a report
of its sandbox.
"""

from typing import Annotated, Final

import msgspec
from msgspec import Meta, Raw, Struct

from inferd import errors
from inferd.backend.job import Job, TranscribeJob
from inferd.errors import InferdError, InternalError, PeerError
from inferd.ipc.worker import SandboxReport
from inferd.limits.protocol import MAX_MODEL_CHARS
from inferd.wire.requests import CancelLine
from inferd.wire.speech import AppendLine

LENGTH_BYTES: Final = 4


class DecodeTask(Struct, frozen=True, kw_only=True):
    """A line to decode."""

    kind: str
    """Name of the kind of its request: a key of ``KINDS``."""
    n_bytes: int
    """Length of the line, which follows."""
    seed: int
    """Drawn for the request, in case it has none."""
    owner: int
    """The user who sent it."""
    marker: str = ""
    """Drawn for the request; stands for media in its texts."""
    n_fds: int = 0
    """Descriptors that came with the line."""


class DecodeFailure(Struct, frozen=True):
    """The error that a line or a request is refused with."""

    name: str
    """Name of its class in ``errors``."""
    text: str


class RequestHead(Struct, frozen=True, kw_only=True):
    """A request without its large parts."""

    kind: str
    """As in the task."""
    request: Raw
    """A request of this kind, as msgpack."""
    stats: dict[str, int] = {}
    """Statistics for the log."""
    refusal: DecodeFailure | None = None
    """Why it is refused; there is no job then."""
    job: Job | None = None
    transcription: TranscribeJob | None = None
    needs: list[list[str | int]] = []
    model: Annotated[str, Meta(max_length=MAX_MODEL_CHARS)] | None = None
    priority: int = 0
    deadline_ms: int | None = None
    keep_alive_s: float | None = None
    describe: bool = False
    streams: bool = True


class DecodeResult(Struct, frozen=True, kw_only=True):
    """The decoded line: one of a failure, a cancel, an append and a request."""

    failure: DecodeFailure | None = None
    """The line is malformed."""
    cancel: CancelLine | None = None
    append: AppendLine | None = None
    request: RequestHead | None = None
    sections: list[int] = []
    """Lengths of the sections that follow: for a request its job's content and the text of
    each attachment, empty if it has none; for an append its text."""


def failure_of(error: InferdError, *, max_chars: int) -> DecodeFailure:
    """Encode an error, with its text truncated."""
    return DecodeFailure(type(error).__name__, str(error)[:max_chars])


def error_of(failure: DecodeFailure) -> InferdError:
    """Rebuild the error of a failure, which only has the name of its class and its text.

    That suffices for every ``PeerError`` but those with a constructor of their own, such as
    ``ContextOverflowError``. These, and names of other classes, become an
    ``InternalError``: no line decoder raises them, so the process misbehaves.
    """
    kind = getattr(errors, failure.name, None)
    if (
        isinstance(kind, type)
        and issubclass(kind, PeerError)
        and kind.__init__ is PeerError.__init__
    ):
        return kind(failure.text)
    return InternalError("a large line could not be read")


RESULT_DECODER: Final = msgspec.msgpack.Decoder(DecodeResult)
SANDBOX_REPORT_DECODER: Final = msgspec.msgpack.Decoder(SandboxReport)
TASK_DECODER: Final = msgspec.msgpack.Decoder(DecodeTask)
ENCODER: Final = msgspec.msgpack.Encoder()


def framed(message: SandboxReport | DecodeTask | DecodeResult) -> bytes:
    """Encode a message with its length."""
    data = ENCODER.encode(message)
    return len(data).to_bytes(LENGTH_BYTES, "little") + data
