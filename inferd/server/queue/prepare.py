"""The order in which a backend prepares requests: one at a time, as the queue has them.

A backend prepares requests one after another. In order of arrival it would prepare all
prompts of a user who floods the queue before the prompt of another user whose turn to run
comes sooner. Users whose requests already have permits alternate.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import trio

from inferd.backend.caller import Caller
from inferd.server.queue.requests import Permit


class PrepareLocks:
    """A lock for each backend, passed on in the order of the request queue."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[Permit, trio.Event]] = {}  # by locked backend

    @asynccontextmanager
    async def acquire(
        self, backend: str, permit: Permit, order: Callable[[], Sequence[Permit]]
    ) -> AsyncIterator[None]:
        """Hold the lock of a backend while inside.

        Args:
            backend: its name.
            permit: of the request that is to be prepared.
            order: gives the permits that are not granted yet, the next first.

        Cancellation: the request stops waiting, or passes the lock on.
        """
        waiting = self._waiting.get(backend)
        if waiting is None:
            waiting = self._waiting[backend] = {}
        else:
            waiting[permit] = trio.Event()
        try:
            if permit in waiting:
                await waiting[permit].wait()
            yield
        finally:
            if permit in waiting:
                del waiting[permit]
            elif waiting:
                following = _first(waiting, order())
                waiting.pop(following).set()
                _move_to_end(waiting, following.caller)
            else:
                del self._waiting[backend]


def _first(waiting: dict[Permit, trio.Event], order: Sequence[Permit]) -> Permit:
    """Choose the next request: one whose permit is granted, else the first in order."""
    positions = {permit: at for at, permit in enumerate(order)}
    return min(waiting, key=lambda permit: positions.get(permit, -1))


def _move_to_end(waiting: dict[Permit, trio.Event], caller: Caller) -> None:
    """Move the waiting requests of a user behind those of others, the caller's own last."""
    own = [each for each in waiting if each.caller.user == caller.user]
    for permit in sorted(own, key=lambda each: each.caller == caller):
        waiting[permit] = waiting.pop(permit)
