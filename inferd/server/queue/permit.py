"""The right of one request to run: awaited in the queue, granted, and taken back."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager
from typing import Protocol

import trio

from inferd.backend.caller import NO_CALLER, Caller
from inferd.engine.one_shot_cancel import OneShotCancel
from inferd.errors import InferdError
from inferd.server.queue.notes import QueueNotes

__all__ = ["PausableJob", "Permit"]


class PausableJob(Protocol):
    """A running job that can be paused."""

    def pause(self, on_paused: Callable[[], object]) -> None:
        """Pause the job; call ``on_paused`` once it is paused, unless it ends before."""

    def resume(self) -> None:
        """Resume the job."""

    def report_queue_position(self, position: int) -> None:
        """Send its client the position in the queue."""


class Permit:
    """One request's right to run, which may be pending, granted or taken back.

    Args:
        ticket: the number by which ``Admission`` knows the request.
        caller: whose request it is.
        backend: the backend that serves it.
    """

    def __init__(
        self, ticket: int, caller: Caller = NO_CALLER, backend: str = ""
    ) -> None:
        self.ticket = ticket
        self.caller = caller
        self.backend = backend
        self.has_started = False
        """Whether it was ever granted."""
        self._changed = trio.Event()
        self._start = OneShotCancel()
        self._rejection: InferdError | None = None
        self.wants_position = False
        """Whether the client wants its position in the queue."""
        self.is_granted = False
        self.position = 0
        """From 1, the next to run; 0 while it is unknown or no longer waits."""
        self.is_idle = False
        """Whether the request has nothing to do, and needs no permit."""
        self.paused_s = 0.0
        """Seconds that the job was paused for other requests, in total."""
        self.n_pauses = 0
        """Times that other requests took the permit, after the job started or before."""
        self.notes = QueueNotes()
        """What is told of its wait afterwards."""
        self._job: PausableJob | None = None
        self._is_pausing = False
        self._paused_at: float | None = None

    async def wait(self) -> None:
        """Wait until the permit is granted.

        Raises:
            InferdError: it was rejected with that.
        """
        while not self.is_granted:
            await self._changed.wait()
        self.raise_rejection()

    def raise_rejection(self) -> None:
        """Raise the error that it was rejected with, if it was.

        Raises:
            InferdError: that error.
        """
        if self._rejection is not None:
            raise self._rejection

    async def positions(self) -> AsyncGenerator[int, None]:
        """Yield the position in the queue and every later one, until granted."""
        sent = 0
        while not self.is_granted:
            if self.position != sent:
                sent = self.position
                yield sent
            else:
                await self._changed.wait()

    def set_position(self, position: int) -> None:
        """Change the position, and report it to the client of a paused job."""
        if position != self.position:
            self.position = position
            self.notes.moved(position)
            self._notify()
            if self._job is not None and self.wants_position:
                self._job.report_queue_position(position)

    def grant(self) -> None:
        """Start the request, or resume its job."""
        self.is_granted = True
        self._start.fire()
        self._notify()
        if self._paused_at is not None:
            self.paused_s += trio.current_time() - self._paused_at
            self._paused_at = None
        if self._job is not None:
            self._job.resume()

    def set_job(self, job: PausableJob) -> None:
        """Set the job that runs with this permit; called once, while it is granted."""
        self._job = job

    def pause(self, on_paused: Callable[[], object]) -> None:
        """Take the permit back; a job that runs is paused first.

        Args:
            on_paused: called once the permit is free, unless the request ends before.
        """
        if self._is_pausing:
            return

        def on_job_paused() -> None:
            self._is_pausing = self.is_granted = False
            self.position = 0
            on_paused()

        self._is_pausing = True
        if self._job is None:
            on_job_paused()
        else:
            self._job.pause(on_job_paused)

    def mark_waiting(self) -> None:
        """Note that a job that had started waits for other requests from now on."""
        if self._job is not None:
            self._paused_at = trio.current_time()

    def until_granted(self) -> AbstractContextManager[None]:
        """Cancel the block inside once the permit is granted or rejected."""
        return self._start.until_fired()

    def reject(self, error: InferdError) -> None:
        """Fail ``wait`` with an error, unless the job has started or may start."""
        if not self.is_granted and self._job is None:
            self._rejection = error
            self.grant()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = trio.Event()
