"""The vocabulary of a worker's model, which the worker tells once, when it is asked."""

from collections.abc import Callable

import trio

from inferd.engine.answers import WorkerDiedError
from inferd.engine.conduct import LieError
from inferd.ipc import Spell, Spelt


class Vocabulary:
    """Asks a worker for its vocabulary, the first time that somebody wants it.

    Args:
        post: sends the worker a message.
    """

    def __init__(self, post: Callable[[Spell], None]) -> None:
        self._post = post
        self._words: bytes | None = None
        self._is_asked = False
        self._is_settled = trio.Event()

    async def get(self) -> bytes:
        """Give it, and wait for the worker to tell it.

        Raises:
            WorkerDiedError: the worker is gone.
        """
        if not self._is_asked:
            self._is_asked = True
            self._post(Spell())
        await self._is_settled.wait()
        if self._words is None:
            raise WorkerDiedError("the worker is gone")
        return self._words

    def told(self, message: Spelt) -> None:
        """Keep what the worker has told.

        Raises:
            LieError: it was not asked, or has told already.
        """
        if not self._is_asked or self._words is not None:
            raise LieError("a vocabulary that it was not asked")
        self._words = message.words
        self._is_settled.set()

    def give_up(self) -> None:
        """Tell those who wait that the worker is gone."""
        self._is_settled.set()
