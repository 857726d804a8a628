"""Wait for one's turn: the tasks around the gate of ``admission``."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import trio

from inferd.admission import Admission
from inferd.errors import DrainingError


class Turn:
    """A place in the queue, or a permit."""

    def __init__(self) -> None:
        self._came = trio.Event()
        self._is_lost = False

    async def wait(self) -> None:
        """Wait for a permit.

        Raises:
            DrainingError: there will be none.
        """
        await self._came.wait()
        if self._is_lost:
            raise DrainingError

    def begin(self) -> None:
        """Let the one who waits run."""
        self._came.set()

    def lose(self) -> None:
        """Turn the one who waits away, if it waits."""
        if not self._came.is_set():
            self._is_lost = True
            self._came.set()


class Turns:
    """The one gate that every request passes, whatever its socket."""

    def __init__(self, gate: Admission) -> None:
        self._gate = gate
        self._numbers = itertools.count()
        self._turns: dict[int, Turn] = {}

    @contextmanager
    def admitted(self) -> Iterator[Turn]:
        """Hold a place from arrival until whatever ends the request.

        Raises:
            QueueFullError: there is none.
            DrainingError: there are no more.
        """
        ticket = next(self._numbers)
        turn = Turn()
        if self._gate.arrive(ticket):
            turn.begin()
        self._turns[ticket] = turn
        try:
            yield turn
        finally:
            del self._turns[ticket]
            successor = self._gate.leave(ticket)
            if successor is not None:
                self._turns[successor].begin()

    def close(self) -> None:
        """Take nobody in any more."""
        self._gate.close()

    def turn_away(self) -> None:
        """Take the hope from all who still wait; those who run go on."""
        for turn in self._turns.values():
            turn.lose()
