"""A hostile client: what it sends, how it leaves, and what has to come back.

What comes back is foretold with the daemon's own decoders, so it is the connection that
is tried here: one terminal frame for each request, in order, and none besides.
"""

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from enum import Enum, auto
from pathlib import Path
from typing import Final, NamedTuple

import trio

from fuzz.corpus import SurfaceName
from fuzz.descriptors import opened
from fuzz.judge import MAX_ERROR_BYTES, BrokenPromiseError, frames_of, read
from fuzz.target import LEAVES, is_terminal
from inferd.errors import PeerError
from inferd.limits.connections import ADMIN_LISTENER_EVENTS
from inferd.wire.codec import decode_command
from inferd.wire.framing import LineSplitter
from tests.fakes.fds import send_with

PATIENCE_S: Final = 30.0
"""Seconds that a whole exchange may take: over it, the daemon hangs."""
READ_BYTES: Final = 64 * 1024
CODES: Final = (
    *("queue_full", "invalid_request", "frame_too_large", "attachment_unsupported"),
    *("deadline_exceeded", "cancelled", "model_not_found", "permission_denied"),
)
"""What a client may be told; another code is a bug, or the death of a worker."""
SHOWN_IDS: Final = 3
BORDERLINE: Final = range(800, 1200)
"""Brackets opened: CPython's own limit is 1000 levels of whatever is on the stack."""


class Manner(Enum):
    """How a client behaves."""

    PATIENT = auto()
    """Ends its own side and reads to the end."""
    DRIBBLING = auto()
    """The same, a byte at a time."""
    HASTY = auto()
    """Leaves without reading."""
    BROKEN_OFF = auto()
    """Leaves in the middle of a line."""
    FICKLE = auto()
    """Reads one frame, then leaves."""


class Client(NamedTuple):
    """A connection, and what goes along with the first byte."""

    stream: trio.SocketStream
    fds: Sequence[int]


class Foretold(NamedTuple):
    """The terminal frames that are due."""

    ids: tuple[str, ...]
    """Of the requests, in order; empty for a line that is none."""
    closes: bool
    """Whether the last of them ends the connection."""
    n_lines: int
    """Lines that count, cancels among them."""


def foretell(surface: SurfaceName, data: bytes) -> Foretold:
    """Tell what a client gets that sends this and reads to the end."""
    ids: list[str] = []
    n_lines = 0
    try:
        for frame in frames_of(surface, data):
            n_lines += 1
            if surface == "admin":
                ids.append("admin")
            elif (request := read(surface, frame)) is not None:
                ids.append(request.id)
    except PeerError as error:
        ids.append("admin" if surface == "admin" else "")
        return Foretold(tuple(ids), error.closes_connection, n_lines)
    return Foretold(tuple(ids), closes=False, n_lines=n_lines)


def broken_off(data: bytes) -> bytes:
    """Leave the first two thirds."""
    return data[: len(data) * 2 // 3]


def is_borderline(surface: SurfaceName, data: bytes) -> bool:
    """Tell whether what comes back depends on more than the bytes.

    1. It is nested so deeply that the reader's own stack decides.
    2. It asks for more replies than may wait for a listener, who is cut off if it reads
       them too slowly.
    """
    n_lines = data.count(b"\n")
    if surface == "admin" and n_lines > ADMIN_LISTENER_EVENTS // 2:
        return True
    return data.count(b"[") + data.count(b"{") in BORDERLINE


def drains(data: bytes) -> bool:
    """Tell whether one of these lines would end the daemon, as it is meant to."""
    for line in data.split(b"\n"):
        with suppress(PeerError):
            if decode_command(line).command == "drain":
                return True
    return False


async def exchange(
    directory: Path,
    surface: SurfaceName,
    data: bytes,
    manner: Manner,
    kinds: Sequence[str] = (),
) -> None:
    """Be a client for the length of one connection.

    Args:
        directory: where the daemon's sockets are.
        surface: which of them.
        data: what to send.
        manner: how.
        kinds: of the descriptors that go with the first byte.

    Raises:
        BrokenPromiseError: the daemon does not answer as it must.
    """
    try:
        with trio.fail_after(PATIENCE_S):
            stream = await trio.open_unix_socket(str(directory / LEAVES[surface]))
            with opened(kinds) as fds:
                async with stream:
                    await _converse(Client(stream, fds), surface, data, manner)
    except trio.TooSlowError as error:
        raise BrokenPromiseError("the daemon hangs") from error


async def _converse(
    client: Client, surface: SurfaceName, data: bytes, manner: Manner
) -> None:
    match manner:
        case Manner.PATIENT:
            await _send_and_read(client, surface, data)
        case Manner.DRIBBLING:
            await _send_and_read(client, surface, data, n_at_once=1)
        case Manner.HASTY:
            await _send(client, data)
        case Manner.BROKEN_OFF:
            await _send(client, broken_off(data))
        case Manner.FICKLE:
            await _send(client, data)
            await _end(client.stream)
            async with aclosing(_frames(client.stream)) as frames:
                await anext(frames, None)


async def _send(client: Client, data: bytes, n_at_once: int = 0) -> None:
    step = n_at_once or len(data) or 1
    stream, fds = client
    with suppress(trio.BrokenResourceError, BrokenPipeError):  # refused, and closed
        if fds:
            await send_with(stream, data[:1], fds)
            data = data[1:]
        for start in range(0, len(data), step):
            await stream.send_all(data[start : start + step])


async def _end(stream: trio.SocketStream) -> None:
    with suppress(trio.BrokenResourceError):
        await stream.send_eof()


async def _send_and_read(
    client: Client, surface: SurfaceName, data: bytes, *, n_at_once: int = 0
) -> None:
    due = foretell(surface, data)
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def send() -> None:
            await _send(client, data, n_at_once)
            await _end(client.stream)

        broken = await _broken_promise(client.stream, surface, due)
        nursery.cancel_scope.cancel()
    if broken is not None:
        raise broken


async def _broken_promise(
    stream: trio.SocketStream, surface: SurfaceName, due: Foretold
) -> BrokenPromiseError | None:
    """Read to the end; out of a nursery, an exception would come in a group."""
    try:
        await _read(stream, surface, due)
    except BrokenPromiseError as error:
        return error
    return None


async def _read(stream: trio.SocketStream, surface: SurfaceName, due: Foretold) -> None:
    ids: list[str] = []
    async with aclosing(_frames(stream)) as frames:
        while surface != "admin" or len(ids) < len(due.ids):
            frame = await anext(frames, None)
            if frame is None:
                break
            line, fields = frame
            _check_frame(line, fields, due.ids[len(ids) :])
            if is_terminal(fields):
                ids.append(str(fields["id"]))
    if tuple(ids) != due.ids:
        raise BrokenPromiseError(
            f"{len(ids)} terminal frames, due were {len(due.ids)}: the last of them "
            f"{ids[-SHOWN_IDS:]}, due {due.ids[-SHOWN_IDS:]}"
        )


def _check_frame(
    line: bytes, fields: dict[str, object], open_ids: Sequence[str]
) -> None:
    """See that a frame belongs to the request whose turn it is, and blames nobody else."""
    if fields.get("type") == "status" and fields.get("id") == "admin":
        return
    if not open_ids or fields.get("id") != open_ids[0]:
        raise BrokenPromiseError(f"a frame of no request: {line[:200]!r}")
    if fields.get("type") != "error":
        return
    if fields.get("code") not in CODES:
        raise BrokenPromiseError(f"an error that is nobody's fault: {line[:200]!r}")
    if len(line) > MAX_ERROR_BYTES + 6 * len(open_ids[0]):
        raise BrokenPromiseError(f"an error frame over its bound: {line[:200]!r}")


async def _frames(
    stream: trio.SocketStream,
) -> AsyncGenerator[tuple[bytes, dict[str, object]], None]:
    splitter = LineSplitter()
    with suppress(trio.BrokenResourceError):  # closed before it had read all
        while data := await stream.receive_some(READ_BYTES):
            splitter.feed(data)
            while (line := splitter.next_frame()) is not None:
                yield line, _fields(line)
    if splitter.pending_bytes:
        raise BrokenPromiseError("half a frame at the end")


def _fields(line: bytes) -> dict[str, object]:
    with suppress(ValueError):
        fields = json.loads(line)
        if isinstance(fields, dict):
            return fields
    raise BrokenPromiseError(f"no JSON object: {line[:200]!r}")
