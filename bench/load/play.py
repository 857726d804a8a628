"""Ask, and note when bytes come: nothing is read before all answers are complete."""

import selectors
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from bench.load.recording import Recording
from bench.load.scene import Answer, Ask
from bench.load.speech import TAIL_BYTES, ServerError, Speech

READ_BYTES: Final = 256 * 1024
SILENCE_S: Final = 300.0
"""Seconds without a byte from anybody before the clients give up."""


class Call:
    """A request and its answer, on a connection of its own."""

    def __init__(self, ask: Ask, speech: Speech) -> None:
        self.ask = ask
        self.sock: socket.socket | None = None
        self.recording = Recording()
        self.is_over = False
        self._speech = speech
        self._request = speech.request(ask)

    def send(self) -> socket.socket:
        """Connect, and send the request: servers close what is silent for long."""
        self.sock = self._speech.connected()
        self.recording.sent_at = time.monotonic()
        self.sock.sendall(self._request)
        return self.sock

    def read(self, sock: socket.socket) -> None:
        """Read what is there.

        Raises:
            ServerError: the server hung up before its answer was complete.
        """
        data = sock.recv(READ_BYTES)
        moment = time.monotonic()
        if not data:
            raise ServerError(f"hung up after {bytes(self.recording.data)[-200:]!r}")
        self.recording.add(data, moment)
        tail = bytes(self.recording.data[-TAIL_BYTES:])
        self.is_over = self._speech.is_over(tail)

    def answer(self) -> Answer:
        """Read the answer."""
        return self._speech.answer(self.recording)


def play(speech: Speech, asks: Sequence[Ask]) -> list[Answer]:
    """Have all requests answered; give the answers in their order.

    Raises:
        ServerError: one was not.
    """
    with ExitStack() as stack:
        waiting = stack.enter_context(selectors.DefaultSelector())
        calls = [Call(ask, speech) for ask in asks]
        awaited = [call for call in calls if not call.ask.hangs_up]
        while not all(call.is_over for call in awaited):
            for call in due(calls, speech):
                sock = stack.enter_context(call.send())
                waiting.register(sock, selectors.EVENT_READ, call)
            listen(waiting)
        return [call.answer() for call in calls]


def due(calls: Sequence[Call], speech: Speech) -> list[Call]:
    """Choose the requests whose time has come."""
    unsent = [call for call in calls if call.sock is None]
    n_pieces = calls[0].recording.data.count(speech.piece_mark) if unsent else 0
    return [call for call in unsent if n_pieces >= call.ask.after_pieces]


def listen(waiting: selectors.BaseSelector) -> None:
    """Read what came.

    Raises:
        ServerError: nothing came for too long, or an answer broke off.
    """
    events = waiting.select(SILENCE_S)
    if not events:
        raise ServerError(f"silent for {SILENCE_S:.0f} s")
    for key, _ in events:
        sock: socket.socket = key.fileobj  # type: ignore[assignment]  # as registered
        call: Call = key.data
        call.read(sock)
        if call.is_over:
            waiting.unregister(sock)
