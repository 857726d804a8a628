"""A daemon whose every word is known, for tests of what talks to daemons."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from socket import SHUT_WR
from socketserver import StreamRequestHandler, ThreadingUnixStreamServer
from threading import Thread
from typing import Final

from protocol.player import NO_TOKENS
from protocol.vector import LEAVES

Answer = Callable[[bytes], bytes | None] | bytes
"""What to send for one line, ``None`` to close the connection; or what to begin with."""


class Last(bytes):
    """What is sent before the connection is closed; lines are read on after a beginning."""

    __slots__ = ()


SETTLED: Final = b'{"type":"done","id":"","content":""}\n'


def frames(*each: object) -> bytes:
    """Write frames as a daemon does."""
    return b"".join(json.dumps(frame).encode() + b"\n" for frame in each)


def says(*each: object) -> Answer:
    """Answer every line with the same frames."""
    return lambda _: frames(*each)


@contextmanager
def scripted(directory: Path, **answers: Answer) -> Iterator[None]:
    """Serve on the sockets of some surfaces; ``v1`` is settled as a replay asks for."""
    with ExitStack() as stack:
        for surface, answer in answers.items():
            stack.enter_context(_serving(directory / LEAVES[surface], answer))
        yield


@contextmanager
def _serving(path: Path, answer: Answer) -> Iterator[None]:
    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):  # the client left
                if isinstance(answer, bytes):
                    self.wfile.write(answer)
                if isinstance(answer, Last):
                    self.connection.shutdown(SHUT_WR)
                for line in self.rfile:
                    reply = _reply(line, answer)
                    if reply is None:
                        return
                    for byte in reply:  # so that frames come in pieces
                        self.wfile.write(bytes([byte]))
                    if isinstance(reply, Last):
                        return

    with ThreadingUnixStreamServer(str(path), Handler) as server:
        server.daemon_threads = True
        thread = Thread(target=server.serve_forever, args=(0.005,))
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def _reply(line: bytes, answer: Answer) -> bytes | None:
    with suppress(ValueError):
        if json.loads(line) == NO_TOKENS:
            return SETTLED
    return b"" if isinstance(answer, bytes) else answer(line)
