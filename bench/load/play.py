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
    """A request and its answer, on a connection."""

    def __init__(self, ask: Ask, speech: Speech, sock: socket.socket) -> None:
        self.ask = ask
        self.sock = sock
        self.recording = Recording()
        self.is_sent = False
        self.is_over = False
        self._speech = speech
        self._request = speech.request(ask)

    def send(self) -> None:
        """Send the request."""
        self.is_sent = True
        self.recording.sent_at = time.monotonic()
        self.sock.sendall(self._request)

    def read(self) -> None:
        """Read what is there.

        Raises:
            ServerError: the server hung up before its answer was complete.
        """
        data = self.sock.recv(READ_BYTES)
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
        calls = [
            Call(ask, speech, stack.enter_context(speech.connected())) for ask in asks
        ]
        for call in calls:
            waiting.register(call.sock, selectors.EVENT_READ, call)
        awaited = [call for call in calls if not call.ask.hangs_up]
        while not all(call.is_over for call in awaited):
            send_due(calls, speech)
            listen(waiting)
        return [call.answer() for call in calls]


def send_due(calls: Sequence[Call], speech: Speech) -> None:
    """Send the requests whose time has come."""
    first = calls[0].recording.data
    for call in calls:
        if not call.is_sent and first.count(speech.piece_mark) >= call.ask.after_pieces:
            call.send()


def listen(waiting: selectors.BaseSelector) -> None:
    """Read what came.

    Raises:
        ServerError: nothing came for too long, or an answer broke off.
    """
    events = waiting.select(SILENCE_S)
    if not events:
        raise ServerError(f"silent for {SILENCE_S:.0f} s")
    for key, _ in events:
        call: Call = key.data
        call.read()
        if call.is_over:
            waiting.unregister(call.sock)
