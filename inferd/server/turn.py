"""One request's place in the queue, or its permit."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager
from typing import Protocol

import trio

from inferd.engine.cue import Cue
from inferd.errors import DrainingError

__all__ = ["Job", "Turn"]


class Job(Protocol):
    """What runs with a permit."""

    def pause(self, on_paused: Callable[[], object]) -> None:
        """Have it stand still; tell once it does, unless it ends before."""

    def resume(self) -> None:
        """Have it go on."""

    def tell(self, position: int) -> None:
        """Tell its client the place in the queue."""


class Turn:
    """A place in the queue, or a permit, which may be taken back for a while.

    Args:
        ticket: the gate's number for the request.
        user: who has the place.
    """

    def __init__(self, ticket: int, user: int = -1) -> None:
        self.ticket = ticket
        self.user = user
        self._news = trio.Event()
        self._start = Cue()
        self._is_lost = False
        self.is_watched = False
        self.has_come = False
        self.position = 0
        """How many are to run before and with this one; known to those who watch."""
        self.is_silent = False
        """Whether it has nothing to do, and wants no permit."""
        self.paused_s = 0.0
        """Seconds that it waited for others after it had begun, in all."""
        self.n_pauses = 0
        """Times that it lost its permit to others, after it had begun or before."""
        self._job: Job | None = None
        self._is_pausing = False
        self._paused_at: float | None = None

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
            if self._job is not None and self.is_watched:
                self._job.tell(position)

    def begin(self) -> None:
        """Let the one who waits run, or go on."""
        self.has_come = True
        self._start.come()
        self._tell()
        if self._paused_at is not None:
            self.paused_s += trio.current_time() - self._paused_at
            self._paused_at = None
        if self._job is not None:
            self._job.resume()

    def runs(self, job: Job) -> None:
        """Note what runs from here on; once, while it has a permit."""
        self._job = job

    def pause(self, on_paused: Callable[[], object]) -> None:
        """Have what runs stand still; what has not begun waits.

        Args:
            on_paused: called once, unless it ends before.
        """
        if self._is_pausing:
            return

        def stands_still() -> None:
            self._is_pausing = self.has_come = False
            self.position = 0
            on_paused()

        self._is_pausing = True
        if self._job is None:
            stands_still()
        else:
            self._job.pause(stands_still)

    def waits(self) -> None:
        """Note that what had begun waits for others from here on."""
        if self._job is not None:
            self._paused_at = trio.current_time()

    def until_come(self) -> AbstractContextManager[None]:
        """Cut short what is inside once it is our turn, or never will be."""
        return self._start.until_come()

    def lose(self) -> None:
        """Turn the one who waits away, if it waits and has not begun."""
        if not self.has_come and self._job is None:
            self._is_lost = True
            self.begin()

    def _tell(self) -> None:
        self._news.set()
        self._news = trio.Event()
