"""Pause and resume of one job."""

from collections.abc import Callable
from typing import Protocol

import trio

from inferd.ipc.worker import Pause, Resume, ToWorker

__all__ = ["RunControl"]


class MessageSender(Protocol):
    """Sender of messages to a worker."""

    def send(self, message: ToWorker) -> None:
        """Send a message."""


def _nothing(_: int) -> None:
    """Do nothing."""


class RunControl:
    """Pauses and resumes a job, before its run and during it.

    Args:
        ticket: the backend's number for the job.
        on_audio_needed: called when the job waits for more audio, with the bytes that its
            open medium must have in all.
    """

    def __init__(
        self, ticket: int, on_audio_needed: Callable[[int], object] = _nothing
    ) -> None:
        self._ticket = ticket
        self.on_audio_needed = on_audio_needed
        self._worker: MessageSender | None = None
        self._on_paused: Callable[[], object] | None = None
        self._may_run = True
        self._resumed = trio.Event()

    def pause(self, on_paused: Callable[[], object]) -> None:
        """Pause the job.

        Args:
            on_paused: called once it is paused; never if it ends before.
        """
        self._may_run = False
        if self._worker is None:
            on_paused()
            return
        self._on_paused = on_paused
        self._worker.send(Pause(ticket=self._ticket))

    def resume(self) -> None:
        """Resume the job; only after it was paused."""
        self._may_run = True
        self._resumed.set()
        self._resumed = trio.Event()
        if self._worker is not None:
            self._worker.send(Resume(ticket=self._ticket))

    async def wait_resumed(self) -> None:
        """Wait until the job may run."""
        while not self._may_run:
            await self._resumed.wait()

    def began(self, worker: MessageSender) -> None:
        """Note that a worker runs the job."""
        self._worker = worker

    def ended(self) -> None:
        """Note that no worker runs the job."""
        self._worker = None

    def paused(self) -> None:
        """Note that the worker has paused the job."""
        on_paused, self._on_paused = self._on_paused, None
        if on_paused is not None:
            on_paused()

    def audio_needed(self, until_bytes: int) -> None:
        """Note that the job waits until its medium has so many bytes."""
        self.on_audio_needed(until_bytes)
