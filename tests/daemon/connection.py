"""A client of the daemon that trusts nothing: the standard library and raw bytes."""

import json
import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

PATIENCE_S: Final = 90.0
"""Seconds anything may take before a test gives up on it."""

READ_BYTES: Final = 64 * 1024

TERMINAL: Final = ("done", "error", "embeddings", "rerank")

Frame = dict[str, Any]


def generate(text: str = "hello", **fields: Any) -> Frame:
    """Make a v1 request."""
    return {"messages": [{"role": "user", "content": text}], **fields}


def blocks(text: str = "hello", **fields: Any) -> Frame:
    """Make a v2 request."""
    content = [{"type": "text", "text": text}]
    return {"messages": [{"role": "user", "content": content}], **fields}


def to_line(frame: Frame) -> bytes:
    """Write one frame with its newline."""
    return json.dumps(frame).encode() + b"\n"


def content_of(frames: Iterable[Frame]) -> str:
    """Join the text of token frames."""
    return "".join(frame["content"] for frame in frames if frame["type"] == "token")


class Connection:
    """A blocking connection to one of the daemon's sockets."""

    def __init__(self, path: Path, *, timeout_s: float = PATIENCE_S) -> None:
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._sock.settimeout(timeout_s)
        self._buffer = b""
        try:
            self._sock.connect(str(path))
        except OSError:
            self._sock.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def hand_over(self, data: bytes, fds: Sequence[int]) -> None:
        """Send a few bytes with descriptors."""
        socket.send_fds(self._sock, [data], fds)

    def close(self) -> None:
        """Leave."""
        self._sock.close()

    def half_close(self) -> None:
        """Say that nothing more is sent, and go on reading."""
        self._sock.shutdown(socket.SHUT_WR)

    def send_raw(self, data: bytes) -> None:
        """Send bytes."""
        self._sock.sendall(data)

    def send(self, frame: Frame) -> None:
        """Send one frame."""
        self.send_raw(to_line(frame))

    def pour(self, chunks: Iterable[bytes]) -> None:
        """Send bytes for as long as the daemon takes them."""
        with suppress(BrokenPipeError, ConnectionResetError):
            for chunk in chunks:
                self._sock.sendall(chunk)

    def line(self) -> bytes | None:
        """Read one line without its newline; ``None`` at the end of the stream."""
        while b"\n" not in self._buffer:
            data = self._receive()
            if not data:
                assert not self._buffer, f"half a frame at the end: {self._buffer!r}"
                return None
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def frame(self) -> Frame:
        """Read the next frame."""
        line = self.line()
        assert line is not None, "the connection ended where a frame was due"
        return dict(json.loads(line))

    def frames(self) -> list[Frame]:
        """Read frames up to the terminal one."""
        frames = [self.frame()]
        while frames[-1]["type"] not in TERMINAL:
            frames.append(self.frame())
        return frames

    def ask(self, frame: Frame) -> list[Frame]:
        """Send one frame and read the answer to its end."""
        self.send(frame)
        return self.frames()

    def read_eof(self) -> None:
        """Make sure that the daemon closes the connection and says no more."""
        assert self.line() is None

    def read_to_eof(self) -> list[Frame]:
        """Read every frame there is until the daemon closes the connection."""
        return [dict(json.loads(line)) for line in iter(self.line, None)]

    def _receive(self) -> bytes:
        try:
            return self._sock.recv(READ_BYTES)
        except ConnectionResetError:
            return b""  # closed before it had read all that was sent


class Listener(Connection):
    """A listener on the admin socket: an iterator of status frames."""

    def wait_until_heard(self) -> None:
        """Wait for the first frame, and leave it: all that happens from here on is told."""
        self._sock.recv(1, socket.MSG_PEEK)

    def __iter__(self) -> Iterator[Frame]:
        while (line := self.line()) is not None:
            yield dict(json.loads(line))

    def until(self, status: str, **fields: Any) -> list[Frame]:
        """Read frames up to and with the first one like this."""
        wanted = {"status": status, **fields}
        frames: list[Frame] = []
        for frame in self:
            frames.append(frame)
            if wanted.items() <= frame.items():
                return frames
        raise AssertionError(f"no {wanted} in {frames}")

    def order(self, command: str, **fields: Any) -> Frame:
        """Give a command and read its reply, past what else is told."""
        self.send({"command": command, **fields})
        reply = next(frame for frame in self if frame["type"] == "reply")
        assert reply["id"] == "admin"
        assert reply["command"] == command
        return reply
