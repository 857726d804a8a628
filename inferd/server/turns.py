"""Wait for one's turn: the tasks around the gate of ``admission``."""

import itertools
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial

import trio

from inferd.admission.gate import Admission, Claim
from inferd.config import AdmissionSettings
from inferd.engine.ledger import Figure
from inferd.server.turn import Turn

__all__ = ["Turn", "Turns"]


class Turns:
    """The one gate that every request passes, whatever its socket."""

    def __init__(self, gate: Admission) -> None:
        self._gate = gate
        self._numbers = itertools.count()
        self._turns: dict[int, Turn] = {}
        self._next_at = math.inf
        self._timer = trio.CancelScope()

    async def run(self) -> None:
        """Take permits back when it is time to, until cancelled."""
        while True:
            with trio.CancelScope(deadline=self._next_at) as self._timer:
                await trio.sleep_forever()
            self._take_back()

    def count_active(self) -> int:
        """Count the requests that hold a permit."""
        return self._gate.active

    def count_waiting(self) -> int:
        """Count the requests that wait for one."""
        return self._gate.waiting

    def count_waiting_tokens(self) -> int:
        """Count what they have to read, as far as it is known."""
        return self._gate.waiting_tokens

    def count_waiting_bytes(self) -> int:
        """Count the bytes in which they came."""
        return self._gate.waiting_bytes

    def count_paused(self) -> int:
        """Count those that have had a permit and have none."""
        return self._gate.n_paused

    def figures(self) -> Iterator[Figure]:
        """Give what a monitoring system may want to know."""
        yield "active_requests", "Requests that run.", self.count_active
        yield "queued_requests", "Requests that wait.", self.count_waiting
        yield (
            "queued_tokens",
            "Tokens of those that wait, as far as they are counted.",
            self.count_waiting_tokens,
        )
        yield "queued_bytes", "Bytes of them.", self.count_waiting_bytes
        yield (
            "paused_requests",
            "Requests that had begun and stand still, for others or for want of sound.",
            self.count_paused,
        )

    @contextmanager
    def admitted(self, claim: Claim, *, is_watched: bool = False) -> Iterator[Turn]:
        """Hold a place from arrival until whatever ends the request.

        Args:
            claim: what the request is.
            is_watched: whether anybody wants to know the place in the queue.

        Raises:
            QueueFullError: there is none.
            DrainingError: there are no more.
        """
        turn = Turn(next(self._numbers), claim.uid)
        turn.is_watched = is_watched
        if self._gate.arrive(turn.ticket, claim, now=trio.current_time()):
            turn.begin()
        self._turns[turn.ticket] = turn
        self._has_changed()
        try:
            yield turn
        finally:
            del self._turns[turn.ticket]
            self._hand_on(self._gate.leave(turn.ticket, now=trio.current_time()))

    def rest(self, turn: Turn) -> None:
        """Have one that has nothing to do give its permit back, until ``wake``."""
        turn.is_silent = True
        if turn.has_come:
            turn.pause(partial(self._has_paused, turn))

    def wake(self, turn: Turn) -> None:
        """Have one that rests go on in its turn."""
        turn.is_silent = False
        if turn.ticket not in self._turns or not self._gate.is_silent(turn.ticket):
            return
        turn.waits()
        if self._gate.wake(turn.ticket, now=trio.current_time()):
            turn.begin()
        self._has_changed()

    def weigh(self, turn: Turn, n_tokens: int) -> None:
        """Note how much a request has to read.

        Raises:
            QueueFullError: too much waits already; it has to go.
        """
        self._gate.weigh(turn.ticket, n_tokens)

    def bound(self, n_slots: Iterable[int]) -> None:
        """Let no more run at once than every backend has slots; before anybody comes.

        Args:
            n_slots: of each backend; 0 for one without a bound.
        """
        if bounds := [each for each in n_slots if each]:
            self._gate.bound(min(bounds))

    def resize(self, settings: AdmissionSettings) -> None:
        """Change what may wait."""
        self._gate.resize(
            max_queued=settings.max_queued,
            max_queued_tokens=settings.max_queued_tokens,
            max_queued_bytes=settings.max_queued_bytes,
        )
        self._gate.pace(quantum_s=settings.quantum_s, max_live=settings.max_live)

    def close(self) -> None:
        """Take nobody in any more."""
        self._gate.close()

    def turn_away(self) -> None:
        """Take the hope from all who still wait; those who run go on."""
        for turn in self._turns.values():
            turn.lose()

    def order(self) -> list[Turn]:
        """Give those who wait, the next to run first."""
        return [self._turns[ticket] for ticket in self._gate.order()]

    def _has_changed(self) -> None:
        self._move()
        self._take_back()

    def _hand_on(self, successor: int | None) -> None:
        """Have the next run that wants to."""
        while successor is not None and self._turns[successor].is_silent:
            successor = self._gate.paused(
                successor, now=trio.current_time(), waits=False
            )
        if successor is not None:
            self._turns[successor].begin()
        self._has_changed()

    def _take_back(self) -> None:
        """Pause those whose permits are due, and note when the next is."""
        now = trio.current_time()
        while (due := self._gate.due(now=now)).ticket is not None:
            turn = self._turns[due.ticket]
            turn.pause(partial(self._has_paused, turn))
        self._next_at = self._timer.deadline = due.at

    def _has_paused(self, turn: Turn) -> None:
        if turn.ticket not in self._turns:
            return
        turn.waits()
        turn.n_pauses += not turn.is_silent
        now = trio.current_time()
        self._hand_on(self._gate.paused(turn.ticket, now=now, waits=not turn.is_silent))

    def _move(self) -> None:
        if any(turn.is_watched for turn in self._turns.values()):
            for position, turn in enumerate(self.order(), start=1):
                turn.move(position)
