"""Real Unix sockets within one process, and a client that speaks frames on one."""

import json
import os
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, Self

import trio

from inferd.surfaces import SURFACES, Surface
from inferd.wire.framing import LineSplitter

Frame = dict[str, Any]

TERMINAL: Final = ("done", "error", "embeddings", "rerank")
READ_BYTES: Final = 64 * 1024
PATIENCE_S: Final = 100_000
"""Virtual seconds after which a frame that has not come has failed its test."""


def bare(stream: trio.SocketStream) -> socket.socket:
    """Return the stdlib socket of a stream, as ``accept`` would."""
    sock: socket.socket = getattr(stream.socket, "_sock")  # noqa: B009  # it is trio's own
    return sock


def unix_pair() -> tuple[trio.SocketStream, trio.SocketStream]:
    """Make both ends of a connection over a real Unix socket."""
    ends: list[trio.SocketStream] = []
    for sock in socket.socketpair():
        sock.setblocking(False)
        ends.append(trio.SocketStream(trio.socket.from_stdlib_socket(sock)))
    return ends[0], ends[1]


@asynccontextmanager
async def open_pair() -> AsyncIterator[tuple[trio.SocketStream, trio.SocketStream]]:
    """Make both ends of a connection; both are closed on leaving."""
    ours, theirs = unix_pair()
    async with ours, theirs:
        yield ours, theirs


def fill_pipe(stream: trio.SocketStream) -> None:
    """Write until the socket's buffer is full."""
    with suppress(BlockingIOError):
        while True:
            os.write(stream.socket.fileno(), b"x" * READ_BYTES)


def generate(request_id: str = "r", text: str = "hello", **fields: Any) -> bytes:
    """Make the line of a v1 request."""
    messages = [{"role": "user", "content": text}]
    return to_line({"id": request_id, "messages": messages, **fields})


def blocks(request_id: str = "r", text: str = "hello", **fields: Any) -> bytes:
    """Make the line of a v2 request."""
    content = [{"type": "text", "text": text}]
    messages = [{"role": "user", "content": content}]
    return to_line({"id": request_id, "messages": messages, **fields})


def embed(request_id: str = "r", text: str = "hello", **fields: Any) -> bytes:
    """Make the line of an embed request."""
    return to_line({"id": request_id, "input": [text], **fields})


def rerank(request_id: str = "r", text: str = "hello", **fields: Any) -> bytes:
    """Make the line of a rerank request."""
    documents = [text, "another"]
    return to_line({"id": request_id, "query": "q", "documents": documents, **fields})


BY_SOCKET: Mapping[str, Surface] = {each.socket: each for each in SURFACES}
"""Each surface by the file name of its socket."""

REQUESTS: Final = {
    "infer.sock": generate,
    "infer.v2.sock": blocks,
    "infer.embed.sock": embed,
    "infer.rerank.sock": rerank,
}
"""How to write a request, for each socket that takes some."""


def cancel(request_id: str = "r", **fields: Any) -> bytes:
    """Make the line of a cancel."""
    return to_line({"type": "cancel", "id": request_id, **fields})


def append(request_id: str = "r", attachment_id: str = "s", **fields: Any) -> bytes:
    """Make the line of an append."""
    ids = {"id": request_id, "attachment_id": attachment_id}
    return to_line({"type": "append", **ids, **fields})


def to_line(frame: Frame) -> bytes:
    """Encode a frame with its newline."""
    return json.dumps(frame).encode() + b"\n"


class FrameClient:
    """A client's end of a connection.

    Args:
        leaf: of the socket it is connected to.
    """

    def __init__(self, stream: trio.SocketStream, leaf: str = "infer.sock") -> None:
        self.stream = stream
        self.leaf = leaf
        self._splitter = LineSplitter()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Disconnect."""
        await trio.aclose_forcefully(self.stream)

    async def send(self, data: bytes) -> None:
        """Send bytes."""
        await self.stream.send_all(data)

    async def half_close(self) -> None:
        """Shut down the sending side, and go on reading."""
        await self.stream.send_eof()

    async def read_bytes(self, n_bytes: int) -> None:
        """Read a number of bytes, even to the middle of a frame."""
        while n_bytes > 0:
            data = await self.stream.receive_some(min(n_bytes, READ_BYTES))
            assert data, "the connection ended"
            self._splitter.feed(data)
            n_bytes -= len(data)

    async def frame(self) -> Frame | None:
        """Read the next frame; ``None`` at the end."""
        while (line := self._splitter.next_frame()) is None:
            data = await self._read()
            if not data:
                assert self._splitter.last_frame() is None, "half a frame at the end"
                return None
            self._splitter.feed(data)
        return dict(json.loads(line))

    async def _read(self) -> bytes | bytearray:
        with trio.fail_after(PATIENCE_S):
            try:
                return await self.stream.receive_some(READ_BYTES)
            except trio.BrokenResourceError:
                return b""  # closed before it had read all that we sent

    async def answer(self) -> list[Frame]:
        """Read frames up to the terminal one, or to the end."""
        frames: list[Frame] = []
        while (frame := await self.frame()) is not None:
            frames.append(frame)
            if frame["type"] in TERMINAL:
                break
        return frames

    async def ask(self, request_id: str = "r", **fields: Any) -> list[Frame]:
        """Send one request and read its answer."""
        await self.send(REQUESTS[self.leaf](request_id, **fields))
        return await self.answer()

    async def rest(self) -> list[Frame]:
        """Read all frames to the end."""
        frames: list[Frame] = []
        while (frame := await self.frame()) is not None:
            frames.append(frame)
        return frames
