"""Messages between the daemon and a line decoder process, as msgpack.

A message is preceded by its length, four bytes, little endian. A task is followed by the
bytes of the line, a result by its sections. The process sends the first message, a report
of its sandbox.
"""

from typing import Final, Literal

import msgspec
from msgspec import Struct

from inferd import errors
from inferd.backend.job import EmbedJob, GenerateJob, RerankJob, TranscribeJob
from inferd.errors import InferdError, InternalError
from inferd.ipc.worker import SandboxReport
from inferd.limits.engine import MAX_IPC_MESSAGE_BYTES
from inferd.limits.line_decoder import MAX_HEAD_BYTES
from inferd.limits.protocol import MAX_RERANK_BYTES
from inferd.routing import decode_requirement
from inferd.wire.blocks import BlocksRequest
from inferd.wire.requests import EmbedRequest, GenerateRequest, RerankRequest
from inferd.wire.speech import AppendLine

LineKind = Literal["text", "blocks", "embed", "rerank"]
"""The kinds of requests that are decoded."""

LENGTH_BYTES: Final = 4

STAT_NAMES: Final = frozenset(("n_attachments", "n_tools", "n_inputs", "n_documents"))
"""Statistics of a request that may be logged."""


class DecodeTask(Struct, frozen=True, kw_only=True):
    """A line to decode."""

    kind: LineKind
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

    text: GenerateRequest | None = None
    blocks: BlocksRequest | None = None
    embed: EmbedRequest | None = None
    rerank: RerankRequest | None = None
    stats: dict[str, int] = {}
    """Statistics for the log."""
    refusal: DecodeFailure | None = None
    """Why it is refused; there is no job then."""
    job: GenerateJob | EmbedJob | RerankJob | None = None
    transcription: TranscribeJob | None = None
    needs: list[list[str | int]] = []
    priority: int = 0
    deadline_ms: int | None = None
    streams: bool = True


class DecodeResult(Struct, frozen=True, kw_only=True):
    """The decoded line: one of a failure, a cancel, an append and a request."""

    failure: DecodeFailure | None = None
    """The line is malformed."""
    cancel: str | None = None
    """The id of the request to cancel."""
    append: AppendLine | None = None
    request: RequestHead | None = None
    sections: list[int] = []
    """Lengths of the sections that follow: for a request its job's content and the text of
    each attachment, empty if it has none; for an append its text."""


def failure_of(error: InferdError, *, max_chars: int) -> DecodeFailure:
    """Encode an error, with its text truncated."""
    return DecodeFailure(type(error).__name__, str(error)[:max_chars])


def error_of(failure: DecodeFailure) -> InferdError:
    """Rebuild the error of a failure; an unknown one becomes an ``InternalError``."""
    kind = getattr(errors, failure.name, None)
    if (
        isinstance(kind, type)
        and issubclass(kind, errors.PeerError)
        and "__init__" not in vars(kind)  # made of its text alone
    ):
        return kind(failure.text)
    return InternalError("a large line could not be read")


def max_result_bytes(task: DecodeTask) -> int:
    """Return the most bytes of a result; that of a rerank request has the documents."""
    return MAX_HEAD_BYTES + (MAX_RERANK_BYTES if task.kind == "rerank" else 0)


def is_plausible(task: DecodeTask, result: DecodeResult) -> bool:
    """Tell whether a result is possible for a line of this kind.

    A process that another client's line has taken over is trusted no further: its results
    may be wrong, but must not break the daemon.
    """
    parts = (result.failure, result.cancel, result.append, result.request)
    if (
        sum(part is not None for part in parts) != 1
        or min(result.sections, default=0) < 0
    ):
        return False
    n_sections = len(result.sections)
    if sum(result.sections) > MAX_IPC_MESSAGE_BYTES + task.n_bytes:
        return False
    if result.request is not None:
        return _is_request_plausible(task, result.request, n_sections)
    if result.append is not None:
        return task.kind == "blocks" and n_sections == 1
    return n_sections == 0


def _is_request_plausible(
    task: DecodeTask, request: RequestHead, n_sections: int
) -> bool:
    heads: dict[LineKind, tuple[object, type[GenerateJob | EmbedJob | RerankJob]]] = {
        "text": (request.text, GenerateJob),
        "blocks": (request.blocks, GenerateJob),
        "embed": (request.embed, EmbedJob),
        "rerank": (request.rerank, RerankJob),
    }
    present = [name for name, (light, _) in heads.items() if light is not None]
    if present != [task.kind] or not STAT_NAMES.issuperset(request.stats):
        return False
    job, speech = request.job, request.transcription
    if request.refusal is not None:
        return job is None and speech is None and n_sections == 0
    n_texts = len(request.blocks.attachments) if request.blocks else 0
    return (
        isinstance(job, heads[task.kind][1])
        and n_sections == 1 + n_texts
        and _is_owned(task, job)
        and (speech is None or speech.owner == task.owner)
        and all(map(_is_requirement, request.needs))
    )


def _is_owned(task: DecodeTask, job: object) -> bool:
    """Tell whether a job belongs to the user who sent the line."""
    return not isinstance(job, GenerateJob) or job.owner == task.owner


def _is_requirement(encoded: list[str | int]) -> bool:
    try:
        decode_requirement(encoded)
    except ValueError:
        return False
    return True


RESULT_DECODER: Final = msgspec.msgpack.Decoder(DecodeResult)
SANDBOX_REPORT_DECODER: Final = msgspec.msgpack.Decoder(SandboxReport)
TASK_DECODER: Final = msgspec.msgpack.Decoder(DecodeTask)
ENCODER: Final = msgspec.msgpack.Encoder()


def framed(message: SandboxReport | DecodeTask | DecodeResult) -> bytes:
    """Encode a message with its length."""
    data = ENCODER.encode(message)
    return len(data).to_bytes(LENGTH_BYTES, "little") + data
