"""What must hold of every line, whatever is in it, before any I/O.

A frame is decoded and resolved as the daemon does it. What comes out is a plan that can
be sent to a worker, or a ``PeerError`` whose frame is valid JSON and short.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from fuzz.corpus import SurfaceName
from inferd.backend.job import Job
from inferd.errors import PeerError
from inferd.ipc import encoding, worker
from inferd.limits.protocol import (
    MAX_COMMAND_BYTES,
    MAX_ERROR_CHARS,
    MAX_FRAME_BYTES,
    MAX_PRIORITY,
    U32_MAX,
)
from inferd.resolve.embed import check_answer_fits, resolve_embed
from inferd.resolve.options import model_of
from inferd.resolve.rerank import resolve_rerank
from inferd.resolve.v1 import resolve_v1
from inferd.resolve.v2 import resolve_v2
from inferd.server.connection.response_writer import error_frame
from inferd.wire.codec import (
    decode_aside,
    decode_blocks,
    decode_command,
    decode_embed,
    decode_generate,
    decode_rerank,
    encode,
)
from inferd.wire.commands import Reply
from inferd.wire.framing import LineSplitter
from inferd.wire.requests import DescribeRequest, Request as WireRequest
from inferd.wire.unknown_fields import strict_refusal

MAX_ERROR_BYTES: Final = 6 * MAX_ERROR_CHARS + 256
"""Bytes of an error frame besides the request's id, if every character is escaped."""
LENGTH_BYTES: Final = 4
"""Bytes before a message to a worker."""
N_EMBD: Final = 8
N_FDS: Final = 2
"""Descriptors that come with each request of v2."""
SEED: Final = 7


class BrokenPromiseError(Exception):
    """Something came out that must not; the text tells what."""


class Work(NamedTuple):
    """What a sound request comes to, as far as it is checked here."""

    job: Job
    priority: int = 0
    deadline_ms: int | None = None


class Request(NamedTuple):
    """A line that was read."""

    id: str
    resolve: Callable[[], Work | None]
    """Raises ``PeerError``; nothing is left to do for ``None``."""


def _read_v1(frame: bytes) -> Request:
    request = decode_generate(frame)

    def resolve() -> Work:
        _refuse_unknown_fields(frame, request)
        return Work(resolve_v1(request, seed=SEED).job)

    return Request(request.id, resolve)


def _read_v2(frame: bytes) -> Request:
    request = decode_blocks(frame)

    def resolve() -> Work:
        _refuse_unknown_fields(frame, request)
        plan = resolve_v2(request, seed=SEED, n_fds=N_FDS)
        return Work(plan.job, plan.priority, plan.deadline_ms)

    return Request(request.id, resolve)


def _read_embed(frame: bytes) -> Request:
    request = decode_embed(frame)

    def resolve() -> Work:
        _refuse_unknown_fields(frame, request)
        job = resolve_embed(request).job
        check_answer_fits(job, n_embd=N_EMBD)
        return Work(job)

    return Request(request.id, resolve)


def _read_rerank(frame: bytes) -> Request:
    request = decode_rerank(frame)

    def resolve() -> Work:
        _refuse_unknown_fields(frame, request)
        return Work(resolve_rerank(request).job)

    return Request(request.id, resolve)


def _refuse_unknown_fields(frame: bytes, request: WireRequest) -> None:
    if refusal := strict_refusal(frame, request):
        raise refusal


def _read_admin(frame: bytes) -> Request:
    command = decode_command(frame)
    encode(Reply(command=command.command, ok=False, error=command.id or ""))
    return Request("", lambda: None)


_READERS: Final[Mapping[SurfaceName, Callable[[bytes], Request]]] = {
    "v1": _read_v1,
    "v2": _read_v2,
    "embed": _read_embed,
    "rerank": _read_rerank,
}


def read(surface: SurfaceName, frame: bytes) -> Request | None:
    """Read a frame as the daemon does; ``None`` for what has no answer of its own.

    Raises:
        PeerError: it is no request.
    """
    if surface == "admin":
        return _read_admin(frame)
    match decode_aside(frame, takes_appends=surface == "v2"):
        case None:
            return _READERS[surface](frame)
        case DescribeRequest() as request:
            return _described(frame, request)
        case _:
            return None


def _described(frame: bytes, request: DescribeRequest) -> Request:
    def resolve() -> None:
        _refuse_unknown_fields(frame, request)
        model_of(request)

    return Request(request.id, resolve)


def frames_of(
    surface: SurfaceName, data: bytes, *, n_at_once: int | None = None
) -> Iterator[bytes]:
    """Cut what a client sent into frames, the last one without a newline.

    Args:
        surface: whose cap holds.
        data: all of it.
        n_at_once: bytes that come at once; all of them if ``None``.

    Raises:
        PeerError: a line is over the cap.
    """
    cap = MAX_COMMAND_BYTES if surface == "admin" else MAX_FRAME_BYTES
    splitter = LineSplitter(cap)
    step = n_at_once or len(data) or 1
    for start in range(0, len(data), step):
        splitter.feed(data[start : start + step])
        while (frame := splitter.next_frame()) is not None:
            yield frame
    if (frame := splitter.last_frame()) is not None:
        yield frame


def judge(surface: SurfaceName, frame: bytes) -> str:
    """Try one frame; give a word for what came of it.

    Raises:
        BrokenPromiseError: not what must come.
        Exception: the same, when it is no ``PeerError``.
    """
    request: Request | None = None
    try:
        request = read(surface, frame)
        work = None if request is None else request.resolve()
    except PeerError as error:
        _check_error(error, "" if request is None else request.id)
        return type(error).__name__
    if request is None:
        return "aside"
    if work is None:
        return "command"
    _check_work(work)
    return "plan"


def _check_error(error: PeerError, request_id: str) -> None:
    if request_id:
        encode(error_frame(request_id, error))
    line = encode(error_frame("", error))
    json.loads(line)
    if len(line) > MAX_ERROR_BYTES:
        raise BrokenPromiseError(
            f"an error frame over its bound: {error.message[:60]}…"
        )


def _check_work(work: Work) -> None:
    message = worker.Prepare(ticket=1, job=work.job)
    if encoding.decode_to_worker(encoding.encode(message)[LENGTH_BYTES:]) != message:
        raise BrokenPromiseError("a job that a worker reads differently")
    if abs(work.priority) > MAX_PRIORITY:
        raise BrokenPromiseError("a priority out of range")
    if work.deadline_ms is not None and not 1 <= work.deadline_ms <= U32_MAX:
        raise BrokenPromiseError("a deadline out of range")
