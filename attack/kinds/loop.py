"""Floods of the event loop: many connections, many lines, all that costs a client little."""

import os
import socket
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

import trio

from attack.asking import plain
from attack.load import Bounds, Load
from attack.measures import LOST, REFUSED
from attack.place import Place
from attack.users import ATTACKER, VICTIM
from inferd import surfaces
from tests.daemon.harness import mock
from torture.clients import connect

KIND: Final = "loop"
BOUNDS: Final = Bounds(new_p99_ms=50, open_p99_ms=20)
CONFIG: Final = {
    "backend": [mock(tokens=["x"], transcribe=True, audio=True)],
    "limits": {"max_connections": 1024},
    "access": {"admin": {"uids": [ATTACKER]}},
}
SELECTIVE: Final = {
    "backend": [mock(tokens=["x"])],
    "access": {"infer": {"uids": [0, VICTIM]}},
}
CHUNK_BYTES: Final = 64 * 1024
PIPELINED: Final = 64
"""Requests that are sent before an answer is read."""
DRIBBLE_S: Final = 0.005
FDS_A_LINE: Final = 32
RECEIVE_BYTES: Final = 64 * 1024

CANCEL: Final = b'{"type":"cancel","id":"r"}\n'
APPEND: Final = b'{"type":"append","id":"r","attachment_id":"a","bytes":"AAAAAA=="}\n'
REFUSED_LINE: Final = b'{"messages":[]}\n'
BROKEN_LINE: Final = b"{\n"
STATUS: Final = (
    b'{"command":"status"}\n',
    b'{"command":"requests"}\n',
    b'{"command":"metrics"}\n',
)


async def on_many(place: Place, n_connections: int, leaf: str, go_on: Any) -> None:
    """Do something on many connections at once; again and again where they end."""
    n_wanted, n_here = place.count(n_connections), 0

    async def one(number: int) -> None:
        nonlocal n_here
        is_first = True
        while True:
            try:
                stream = await connect(place.directory / leaf)
            except OSError:
                place.tally.codes[REFUSED] += 1
                await trio.sleep(DRIBBLE_S)
                continue
            n_here += is_first
            is_first = False
            if n_here == n_wanted:
                place.begun()
            await _on_one(place, stream, partial(go_on, number=number))

    async with trio.open_nursery() as nursery:
        for number in range(n_wanted):
            nursery.start_soon(one, number)


async def _on_one(place: Place, stream: trio.SocketStream, go_on: Any) -> None:
    async with stream:
        try:
            await go_on(place, stream)
        except (trio.BrokenResourceError, OSError):
            place.tally.codes[LOST] += 1


async def pour(
    place: Place, stream: trio.SocketStream, *, line: bytes, number: int
) -> None:
    """Send one line over and over, and read nothing."""
    chunk = line * (CHUNK_BYTES // len(line))
    while True:
        await stream.send_all(chunk)
        place.tally.codes["sent"] += CHUNK_BYTES // len(line)


async def pour_and_read(
    place: Place, stream: trio.SocketStream, *, line: bytes, number: int
) -> None:
    """Send one line over and over, and read what comes."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_pour_to_the_end, place, stream, line)
        await _count(place, stream)
        nursery.cancel_scope.cancel()


async def _count(place: Place, stream: trio.SocketStream) -> None:
    try:
        while data := await stream.receive_some(RECEIVE_BYTES):
            place.tally.codes["answered"] += data.count(b"\n")
    except trio.BrokenResourceError:
        place.tally.codes[LOST] += 1


async def _pour_to_the_end(
    place: Place, stream: trio.SocketStream, line: bytes
) -> None:
    try:
        await pour(place, stream, line=line, number=0)
    except trio.BrokenResourceError:
        return  # what reads is told the same


async def churn(place: Place, stream: trio.SocketStream, *, number: int) -> None:
    """Leave at once."""
    place.tally.codes["connected"] += 1


async def hang_up(place: Place, stream: trio.SocketStream, *, number: int) -> None:
    """Ask for a long answer, and leave before it has begun."""
    await stream.send_all(plain("hello", max_tokens=1000).line)
    place.tally.codes["left"] += 1


async def sit(place: Place, stream: trio.SocketStream, *, number: int) -> None:
    """Say nothing; come back where that is not allowed."""
    await stream.receive_some()
    place.tally.codes["ended"] += 1
    await trio.sleep(DRIBBLE_S)


async def dribble(place: Place, stream: trio.SocketStream, *, number: int) -> None:
    """Send a request a byte at a time."""
    for byte in plain("hello", max_tokens=1).line:
        await stream.send_all(bytes([byte]))
        await trio.sleep(DRIBBLE_S)
    await stream.receive_some()
    place.tally.codes["answered"] += 1


async def half_lines(place: Place, stream: trio.SocketStream, *, number: int) -> None:
    """Send what is just no large line, never end it, and begin again."""
    await stream.send_all(b'{"id":"' + b"x" * (CHUNK_BYTES * 2 - 16))
    await trio.sleep(1)


async def greet(place: Place, stream: trio.SocketStream, *, number: int) -> None:
    """Hear why nobody may come in."""
    data = await stream.receive_some()
    place.tally.codes["permission_denied" if b"denied" in data else LOST] += 1


async def orders(place: Place, stream: trio.SocketStream, *, number: int) -> None:
    """Ask all that one may who only looks on, and read the answers."""
    line = b"".join(STATUS)
    await pour_and_read(place, stream, line=line, number=number)


async def descriptors(place: Place, stream: trio.SocketStream, *, number: int) -> None:
    """Send as many descriptors as fit, with each short line."""
    null = os.open(os.devnull, os.O_RDONLY)
    try:
        while True:
            message = [REFUSED_LINE], [_fds([null] * FDS_A_LINE)]
            await trio.lowlevel.wait_writable(stream.socket)
            await stream.socket.sendmsg(*message)
            place.tally.codes["answered"] += bool(await stream.receive_some())
    finally:
        os.close(null)


def _fds(fds: Sequence[int]) -> tuple[int, int, bytes]:
    data = b"".join(fd.to_bytes(4, "little") for fd in fds)
    return socket.SOL_SOCKET, socket.SCM_RIGHTS, data


def load(name: str, about: str, run: Any, n: int, leaf: str, **fields: Any) -> Load:
    """Make an attack that does something on so many connections."""
    on_all = partial(on_many, n_connections=n, leaf=leaf, go_on=run)
    return Load(
        name=name,
        kind=KIND,
        about=f"{about}, on {n} connections",
        run=on_all,
        **{"bounds": BOUNDS, "config": CONFIG, "is_at_once": True, **fields},
    )


def attacks() -> Iterator[Load]:
    """Give all of them."""
    v1, v2 = surfaces.INFER.socket, surfaces.V2.socket
    yield load("cancels", "cancels, pipelined", partial(pour, line=CANCEL), 200, v1)
    yield load(
        "appends",
        "appends to nothing, pipelined",
        partial(pour, line=APPEND),
        200,
        v2,
    )
    yield load(
        "refusals",
        "requests without messages, whose refusals are read",
        partial(pour_and_read, line=REFUSED_LINE),
        900,
        v1,
    )
    yield load(
        "unread-refusals",
        "requests without messages, whose refusals nobody reads",
        partial(pour, line=REFUSED_LINE),
        900,
        v1,
    )
    yield load(
        "broken-lines",
        "lines that end their connection",
        partial(pour_and_read, line=BROKEN_LINE),
        200,
        v1,
    )
    yield load("churn", "connections that close at once", churn, 8, v1)
    about = "requests whose client leaves at once"
    yield load("hang-ups", about, hang_up, 16, v1, is_at_once=False)
    asked = plain("hello", max_tokens=1000).line.replace(b'"id":""', b'"id":"r"')
    yield load(
        "taken-back",
        "requests and their cancels, pipelined",
        partial(pour_and_read, line=asked + CANCEL),
        50,
        v1,
        is_at_once=False,
    )
    yield load("idle", "more connections than there are places", sit, 1400, v1)
    about = "requests a byte at a time"  # they fill the queue, but for a first one
    yield load("dribbles", about, dribble, 800, v1, is_at_once=False)
    yield load("half-lines", "lines of 128 KiB that never end", half_lines, 400, v1)
    yield load("descriptors", "32 descriptors a line", descriptors, 100, v2)
    yield load(
        "orders",
        "status, requests and metrics, asked by who looks on",
        orders,
        40,
        surfaces.ADMIN.socket,
        is_any=False,
    )
    yield load(
        "admin-churn",
        "listeners that leave at once",
        churn,
        8,
        surfaces.ADMIN.socket,
        is_any=False,
    )
    yield load(
        "strangers",
        "connections of a user who may not come in",
        greet,
        32,
        v1,
        config=SELECTIVE,
        is_any=False,
    )
