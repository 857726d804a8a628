"""Whether a job may run: what its permit says, and what its worker was told."""

from collections.abc import Callable
from typing import Protocol

import trio

from inferd.ipc import Pause, Resume, ToWorker

__all__ = ["Hold"]


class Poster(Protocol):
    """What takes messages to a worker."""

    def post(self, message: ToWorker) -> None:
        """Send one."""


def _nothing(_: int) -> None:
    """Do nothing."""


class Hold:
    """A job that can be paused, before its run and in it.

    Args:
        ticket: the backend's number for the job.
        on_silent: told when it has nothing to do until there are so many bytes of its
            open medium.
    """

    def __init__(
        self, ticket: int, on_silent: Callable[[int], object] = _nothing
    ) -> None:
        self._ticket = ticket
        self.on_silent = on_silent
        self._worker: Poster | None = None
        self._on_paused: Callable[[], object] | None = None
        self._may_run = True
        self._resumed = trio.Event()

    def pause(self, on_paused: Callable[[], object]) -> None:
        """Have it stand still.

        Args:
            on_paused: called once it does; never if it ends before.
        """
        self._may_run = False
        if self._worker is None:
            on_paused()
            return
        self._on_paused = on_paused
        self._worker.post(Pause(ticket=self._ticket))

    def resume(self) -> None:
        """Have it go on; only after it stood still."""
        self._may_run = True
        self._resumed.set()
        self._resumed = trio.Event()
        if self._worker is not None:
            self._worker.post(Resume(ticket=self._ticket))

    async def until_wanted(self) -> None:
        """Wait as long as it is to stand still."""
        while not self._may_run:
            await self._resumed.wait()

    def began(self, worker: Poster) -> None:
        """Note that a worker runs it."""
        self._worker = worker

    def ended(self) -> None:
        """Note that no worker does."""
        self._worker = None

    def has_paused(self) -> None:
        """Note that the worker has it stand still."""
        told, self._on_paused = self._on_paused, None
        if told is not None:
            told()

    def is_silent(self, until_bytes: int) -> None:
        """Note that it has nothing to do until there are so many bytes."""
        self.on_silent(until_bytes)
