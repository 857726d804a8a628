"""Wait for one's turn: the tasks around the gate of ``admission``."""

import itertools
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager

import trio

from inferd.admission.gate import Admission, Claim
from inferd.config import AdmissionSettings
from inferd.engine.cue import Cue
from inferd.engine.ledger import Figure
from inferd.errors import DrainingError


class Turn:
    """A place in the queue, or a permit."""

    def __init__(self, ticket: int) -> None:
        self.ticket = ticket
        self._news = trio.Event()
        self._start = Cue()
        self._is_lost = False
        self.is_watched = False
        self.has_come = False
        self.position = 0
        """How many are to run before and with this one; known to those who watch."""

    async def wait(self) -> None:
        """Wait for a permit.

        Raises:
            DrainingError: there will be none.
        """
        while not self.has_come:
            await self._news.wait()
        if self._is_lost:
            raise DrainingError

    async def positions(self) -> AsyncGenerator[int, None]:
        """Give the place in the queue, and every other one, until it is our turn."""
        told = 0
        while not self.has_come:
            if self.position != told:
                told = self.position
                yield told
            else:
                await self._news.wait()

    def move(self, position: int) -> None:
        """Tell those who watch that they are nearer, or farther."""
        if position != self.position:
            self.position = position
            self._tell()

    def begin(self) -> None:
        """Let the one who waits run."""
        self.has_come = True
        self._start.come()
        self._tell()

    def until_come(self) -> AbstractContextManager[None]:
        """Cut short what is inside once it is our turn, or never will be."""
        return self._start.until_come()

    def lose(self) -> None:
        """Turn the one who waits away, if it waits."""
        if not self.has_come:
            self._is_lost = True
            self.begin()

    def _tell(self) -> None:
        self._news.set()
        self._news = trio.Event()


class Turns:
    """The one gate that every request passes, whatever its socket."""

    def __init__(self, gate: Admission) -> None:
        self._gate = gate
        self._numbers = itertools.count()
        self._turns: dict[int, Turn] = {}

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
        turn = Turn(next(self._numbers))
        turn.is_watched = is_watched
        if self._gate.arrive(turn.ticket, claim, now=trio.current_time()):
            turn.begin()
        self._turns[turn.ticket] = turn
        self._move()
        try:
            yield turn
        finally:
            del self._turns[turn.ticket]
            successor = self._gate.leave(turn.ticket, now=trio.current_time())
            if successor is not None:
                self._turns[successor].begin()
            self._move()

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

    def _move(self) -> None:
        if any(turn.is_watched for turn in self._turns.values()):
            for position, turn in enumerate(self.order(), start=1):
                turn.move(position)
