"""A request that waits for more sound: it holds no permit while it has nothing to do."""

from typing import NoReturn

import trio

from inferd.limits import SILENT_S
from inferd.server.turns import Turn, Turns

__all__ = ["Silence"]


class Silence:
    """Gives a permit back when sound fails to come, and asks for it when there is enough.

    Args:
        turns: that give permits.
        turn: of the request.
    """

    def __init__(self, turns: Turns, turn: Turn) -> None:
        self._turns = turns
        self._turn = turn
        self._n_bytes = 0
        self._until_bytes = 0
        self._is_whole = False
        self._changed = trio.Event()

    @property
    def is_silent(self) -> bool:
        """Whether there is nothing to do with what has come."""
        return not self._is_whole and self._n_bytes < self._until_bytes

    def lasts_until(self, n_bytes: int) -> None:
        """Note that there is nothing to do before so many bytes have come, in all."""
        self._until_bytes = n_bytes
        self._tell()

    def has_come(self, n_bytes: int, *, is_last: bool) -> None:
        """Note that so many bytes have come, in all."""
        self._n_bytes = n_bytes
        self._is_whole = self._is_whole or is_last
        self._tell()

    async def run(self) -> NoReturn:
        """Watch, until cancelled."""
        while True:
            await self._until(is_silent=True)
            with trio.move_on_after(SILENT_S):
                await self._until(is_silent=False)
                continue
            self._turns.rest(self._turn)
            await self._until(is_silent=False)
            self._turns.wake(self._turn)

    async def _until(self, *, is_silent: bool) -> None:
        while self.is_silent is not is_silent:
            await self._changed.wait()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = trio.Event()
