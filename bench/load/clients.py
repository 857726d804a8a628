"""The clients as the measuring process sees them."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec

from bench.load.__main__ import Told
from bench.load.scene import Answer, Ask, Scene
from bench.load.speech import ServerError


class Clients:
    """A process of clients of one server."""

    def __init__(
        self, process: subprocess.Popen[str], *, kind: str, address: str
    ) -> None:
        self._process = process
        self._kind = kind
        self._address = address

    def play(self, asks: Sequence[Ask]) -> list[Answer]:
        """Have all requests answered at once; give the answers in their order.

        Raises:
            ServerError: one was not.
        """
        scene = Scene(kind=self._kind, address=self._address, asks=list(asks))
        print(msgspec.json.encode(scene).decode(), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()  # type: ignore[union-attr]  # asked for below
        told = msgspec.json.decode(line, type=Told)
        if told.error:
            raise ServerError(told.error)
        return told.answers

    def ask(self, ask: Ask) -> Answer:
        """Have one request answered."""
        [answer] = self.play([ask])
        return answer


@contextmanager
def clients_of(kind: str, address: str) -> Iterator[Clients]:
    """Run a process of clients while inside."""
    with subprocess.Popen(
        [sys.executable, "-m", "bench.load"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Clients(process, kind=kind, address=address)
        finally:
            process.stdin.close()  # type: ignore[union-attr]  # asked for above
