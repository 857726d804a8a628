"""Suspension of requests that wait for more audio, so that others can run."""

import math
from typing import NoReturn

import trio

from inferd.limits.admission import AUDIO_IDLE_S
from inferd.server.queue.requests import Permit, RequestQueue

__all__ = ["IdleWatch"]


class IdleWatch:
    """Watch that suspends a request while no audio comes, and resumes it afterwards.

    Args:
        queue: of all requests.
        permit: of the request.
    """

    def __init__(self, queue: RequestQueue, permit: Permit) -> None:
        self._queue = queue
        self._permit = permit
        self._n_bytes = 0
        self._needed_bytes = 0
        self._is_whole = False
        self._idle_since: float | None = None
        self._changed = trio.Event()

    @property
    def is_idle(self) -> bool:
        """Whether the backend needs more audio than was received."""
        return not self._is_whole and self._n_bytes < self._needed_bytes

    def idle_until(self, n_bytes: int) -> None:
        """Note that the backend is idle until so many bytes were received in total."""
        self._needed_bytes = n_bytes
        self._update()

    def received(self, n_bytes: int, *, is_last: bool) -> None:
        """Note that so many bytes were received in total."""
        self._n_bytes = n_bytes
        self._is_whole = self._is_whole or is_last
        self._update()

    async def run(self) -> NoReturn:
        """Suspend after ``AUDIO_IDLE_S`` without work, resume with work, until cancelled."""
        while True:
            until = (
                math.inf
                if self._idle_since is None
                else self._idle_since + AUDIO_IDLE_S
            )
            with trio.move_on_at(until):
                await self._changed.wait()
                continue
            self._queue.suspend(self._permit)
            while self.is_idle:
                await self._changed.wait()
            self._queue.resume(self._permit)

    def _update(self) -> None:
        if not self.is_idle:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = trio.current_time()
        self._changed.set()
        self._changed = trio.Event()
