"""A daemon that says its lines: a real socket, and a thread that follows a script."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.fakes.streams import Frame, to_line

PATIENCE_S: Final = 90.0
"""Seconds that a test's other side gets."""

Dialogue = Callable[[socket.socket], None]
"""What happens on one connection; it is closed afterwards."""


def read_line(sock: socket.socket) -> bytes:
    """Read one line, or what there is before the end."""
    line = b""
    while not line.endswith(b"\n") and (byte := sock.recv(1)):
        line += byte
    return line


def answers(*exchanges: list[Frame]) -> Dialogue:
    """Answer a request with each of these, in turn."""

    def follow(sock: socket.socket) -> None:
        for frames in exchanges:
            if read_line(sock):
                sock.sendall(b"".join(map(to_line, frames)))

    return follow


def says(*frames: Frame) -> Dialogue:
    """Say these at once."""
    return lambda sock: sock.sendall(b"".join(map(to_line, frames)))


def token(text: str, request_id: str = "r") -> Frame:
    """Write a piece of an answer."""
    return {"type": "token", "id": request_id, "content": text}


def done(text: str, request_id: str = "r", **fields: Any) -> Frame:
    """Write the end of an answer."""
    return {
        "type": "done",
        "id": request_id,
        "content": text,
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
        "stop_reason": "end",
        "backend": "chat",
        **fields,
    }


def failure(code: str, message: str = "so it is", request_id: str = "r") -> Frame:
    """Write an error frame."""
    return {"type": "error", "id": request_id, "code": code, "message": message}


def status(word: str, **fields: Any) -> Frame:
    """Write what an admin socket says."""
    return {"id": "admin", "type": "status", "status": word, **fields}


@contextmanager
def listening(path: Path, *dialogues: Dialogue) -> Iterator[threading.Thread]:
    """Follow a dialogue on each connection in turn; give the thread that does.

    On leaving, every dialogue must have come to its end without a failure.
    """
    failures: list[BaseException] = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        listener.settimeout(PATIENCE_S)
        thread = threading.Thread(
            target=_follow_all, args=(listener, dialogues, failures), daemon=True
        )
        thread.start()
        yield thread
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "nobody talked to the listener"
    path.unlink()
    assert not failures, failures


def _follow_all(
    listener: socket.socket,
    dialogues: tuple[Dialogue, ...],
    failures: list[BaseException],
) -> None:
    try:
        for dialogue in dialogues:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(PATIENCE_S)
                dialogue(connection)
    except BaseException as error:  # noqa: BLE001  # told to the test
        failures.append(error)


@contextmanager
def full_backlog(path: Path) -> Iterator[socket.socket]:
    """Listen without accepting, with as many connections as the kernel holds."""
    waiting: list[socket.socket] = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(0)
        try:
            while True:
                sock = socket.socket(socket.AF_UNIX)
                waiting.append(sock)
                sock.setblocking(False)
                sock.connect(str(path))
        except BlockingIOError:
            yield listener
        finally:
            for sock in waiting:
                sock.close()
