"""Results for a thread that may neither wait nor allocate."""

import threading
from typing import Final

RESULTS: Final = 16
"""Results that wait at most: more are older than anybody plays them."""


class ResultQueue:
    """A bounded queue to one reader; what does not fit is left out and counted.

    The reader takes no lock and allocates nothing: the places are there from the start, and
    each position is a small number, of which Python has one object. It takes Python's global
    lock, as all code of Python does.

    Ownership: one thread reads. Any may put, one at a time.
    """

    def __init__(self) -> None:
        n_places = RESULTS + 1  # one is empty, so that full is not empty
        self._places: list[object] = [None] * n_places
        self._next = (*range(1, n_places), 0)
        self._read = 0
        self._written = 0
        self._putting = threading.Lock()
        self.n_dropped = 0
        """Results that were left out."""

    def put(self, result: object) -> bool:
        """Add a result; tell whether there was room."""
        with self._putting:
            following = self._next[self._written]
            if following == self._read:
                self.n_dropped += 1
                return False
            self._places[self._written] = result
            self._written = following  # now the reader sees it
            return True

    def read(self) -> object | None:
        """Take the oldest result; ``None`` if there is none."""
        place = self._read
        if place == self._written:
            return None
        result = self._places[place]
        self._places[place] = None
        self._read = self._next[place]
        return result
