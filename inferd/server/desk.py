"""Where texts are read: one request at a time for each backend, in the order of turns.

A backend reads one after another anyway. Without an order, the texts of one user who
floods the queue would be read before those of another whose turn comes sooner. Users who
hold permits already take turns.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import trio

from inferd.server.turns import Turn


class Desk:
    """A seat for each backend, and those who wait for it."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[Turn, trio.Event]] = {}  # by backends in use

    @asynccontextmanager
    async def seat(
        self, backend: str, turn: Turn, order: Callable[[], Sequence[Turn]]
    ) -> AsyncIterator[None]:
        """Have the seat while inside.

        Args:
            backend: its name.
            turn: whose text is to be read.
            order: gives those whose turn has not come, the next first.

        Cancellation: the place is freed, or the seat passed on.
        """
        waiting = self._waiting.get(backend)
        if waiting is None:
            waiting = self._waiting[backend] = {}
        else:
            waiting[turn] = trio.Event()
        try:
            if turn in waiting:
                await waiting[turn].wait()
            yield
        finally:
            if turn in waiting:
                del waiting[turn]
            elif waiting:
                following = _first(waiting, order())
                waiting.pop(following).set()
                _put_behind(waiting, following.user)
            else:
                del self._waiting[backend]


def _first(waiting: dict[Turn, trio.Event], order: Sequence[Turn]) -> Turn:
    """Choose who is next: one who holds a permit already, else the next to have one."""
    places = {turn: place for place, turn in enumerate(order)}
    return min(waiting, key=lambda turn: places.get(turn, -1))


def _put_behind(waiting: dict[Turn, trio.Event], user: int) -> None:
    """Have others who wait come before those of a user who is served."""
    for turn in [each for each in waiting if each.user == user]:
        waiting[turn] = waiting.pop(turn)
