"""What is due: calls that wait until the program polls."""

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

UNPOLLED_MAX_CHARS: Final = 4 * 1024 * 1024
"""Characters of tokens and answers that wait for ``poll``: then nothing more is received until
there is room, so that a program that loads for a while loses nothing."""

Call = Callable[[], None]


class DueCalls:
    """Calls that are due, in their order.

    Bounds: ``UNPOLLED_MAX_CHARS``; a thread that puts more waits.

    Ownership: any thread may put and take.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._calls: deque[tuple[Call, int]] = deque()
        self._n_chars = 0
        self._is_closed = False

    def put(self, call: Call, n_chars: int = 0) -> None:
        """Add a call; wait for room, unless it is the only one.

        Args:
            call: to be made by the thread that takes it.
            n_chars: of the texts that it keeps.
        """
        with self._changed:
            while (
                self._calls
                and self._n_chars + n_chars > UNPOLLED_MAX_CHARS
                and not self._is_closed
            ):
                self._changed.wait()
            if not self._is_closed:
                self._calls.append((call, n_chars))
                self._n_chars += n_chars
                self._changed.notify_all()

    def take(self) -> Call | None:
        """Take the oldest call; ``None`` if none is due."""
        with self._changed:
            if not self._calls:
                return None
            call, n_chars = self._calls.popleft()
            self._n_chars -= n_chars
            self._changed.notify_all()
            return call

    def wait(self) -> bool:
        """Wait until a call is due; tell whether one is, and not the end."""
        with self._changed:
            while not self._calls and not self._is_closed:
                self._changed.wait()
            return bool(self._calls)

    def close(self) -> None:
        """Leave out what is due, and what is put from now on."""
        with self._changed:
            self._is_closed = True
            self._calls.clear()
            self._changed.notify_all()
