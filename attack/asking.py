"""Requests of raw bytes, of any size, and what comes back."""

import json
import socket
import struct
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import trio

from attack.measures import DONE, HUNG, LOST, REFUSED, Sample
from inferd import surfaces
from inferd.limits.protocol import MAX_FRAME_BYTES
from tests.daemon.connection import TERMINAL
from torture.clients import connect

TIMEVAL: Final = struct.Struct("ll")
READ_BYTES: Final = 64 * 1024
KEPT_BYTES: Final = MAX_FRAME_BYTES + 1
"""Bytes that are kept of one line that the daemon writes."""
ENDING: Final = tuple(f'"type":"{each}"'.encode() for each in TERMINAL)


@dataclass(frozen=True)
class Question:
    """A line, and where to send it."""

    leaf: str
    line: bytes
    name: str = ""

    @classmethod
    def of(cls, leaf: str, name: str = "", **fields: Any) -> "Question":
        """Write a request."""
        text = json.dumps({"id": name[:100], **fields}, separators=(",", ":"))
        return cls(leaf, text.encode() + b"\n", name)

    def named(self, name: str) -> "Question":
        """Give the same with another name."""
        return replace(self, name=name)


def plain(text: str = "hello", **fields: Any) -> Question:
    """Ask for text, on v1."""
    messages = [{"role": "user", "content": text}]
    return Question.of(surfaces.INFER.socket, messages=messages, **fields)


def typed(text: str = "hello", **fields: Any) -> Question:
    """Ask for blocks, on v2."""
    messages = [{"role": "user", "content": [{"type": "text", "text": text}]}]
    return Question.of(surfaces.V2.socket, messages=messages, **fields)


def code_of(line: bytes) -> str:
    """Say how a terminal frame ends its request."""
    frame = json.loads(line)
    return str(frame["code"]) if frame["type"] == "error" else DONE


@dataclass
class Line:
    """A blocking connection of a user who asks one question after another.

    Args:
        path: of the socket.
        patience_s: after which a request hangs.
    """

    path: Path
    patience_s: float
    frames: list[bytes] = field(default_factory=list)
    """Of the last answer."""
    _sock: socket.socket | None = None

    def close(self) -> None:
        """Leave."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    def ask(self, question: Question) -> Sample:
        """Have a question answered; connect first where that has to be.

        After anything but a terminal frame the connection is closed.
        """
        began, self.frames = time.perf_counter(), []
        try:
            code, first = self._converse(question.line, began)
        except (ConnectionRefusedError, FileNotFoundError):
            code, first = REFUSED, 0.0
        except (TimeoutError, BlockingIOError):
            code, first = HUNG, 0.0
        except OSError:
            code, first = LOST, 0.0
        if code in (HUNG, LOST, REFUSED):
            self.close()
        seconds = time.perf_counter() - began
        return Sample(seconds, first or seconds, code, question.name)

    def _converse(self, line: bytes, began: float) -> tuple[str, float]:
        sock = self._connected()
        sock.settimeout(self.patience_s)
        sock.sendall(line)
        rest, first = b"", 0.0
        while True:
            sock.settimeout(max(0.01, began + self.patience_s - time.perf_counter()))
            data = sock.recv(READ_BYTES)
            if not data:
                return LOST, first
            first = first or time.perf_counter() - began
            *lines, rest = (rest + data).split(b"\n")
            self.frames += lines
            for each in lines:
                if any(mark in each for mark in ENDING):
                    return code_of(each), first

    def _connected(self) -> socket.socket:
        if self._sock is None:
            sock = socket.socket(socket.AF_UNIX)
            patience = TIMEVAL.pack(int(self.patience_s), 0)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, patience)
            try:
                sock.connect(str(self.path))  # waits where the backlog is full
            except BaseException:
                sock.close()
                raise
            self._sock = sock
        return self._sock


async def ask(directory: Path, question: Question, patience_s: float) -> Sample:
    """Have a question answered on a connection of its own."""
    try:
        stream = await connect(directory / question.leaf)
    except OSError:
        return Sample(0.0, 0.0, REFUSED, question.name)
    async with stream:
        return await ask_on(stream, question, patience_s)


async def ask_on(
    stream: trio.SocketStream, question: Question, patience_s: float
) -> Sample:
    """Have a question answered on a connection that has nothing else to be answered."""
    began = time.perf_counter()
    code = HUNG
    with trio.move_on_after(patience_s):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_send, stream, question.line)
            code = await _terminal(stream)
            nursery.cancel_scope.cancel()
    seconds = time.perf_counter() - began
    return Sample(seconds, seconds, code, question.name)


async def _send(stream: trio.SocketStream, line: bytes) -> None:
    try:
        await stream.send_all(line)
    except trio.BrokenResourceError:
        return  # refused before it was read


async def _terminal(stream: trio.SocketStream) -> str:
    rest = b""
    try:
        while data := await stream.receive_some(READ_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            for each in lines:
                if any(mark in each for mark in ENDING):
                    return code_of(each)
            if len(rest) > KEPT_BYTES:
                return LOST
    except trio.BrokenResourceError:
        pass
    return LOST
