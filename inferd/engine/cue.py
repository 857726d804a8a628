"""Something that happens once, and cuts short what is done until then."""

from collections.abc import Iterator
from contextlib import contextmanager

import trio


class Cue:
    """Comes once; one task at a time may do something until it does.

    Cost: a scope for who waits, and no task.
    """

    def __init__(self) -> None:
        self._has_come = False
        self._scope: trio.CancelScope | None = None

    def come(self) -> None:
        """Cut short what is done until now, and all that is begun later."""
        self._has_come = True
        if self._scope is not None:
            self._scope.cancel()

    @contextmanager
    def until_come(self) -> Iterator[None]:
        """Leave what is inside at the first checkpoint once it has come."""
        with trio.CancelScope() as scope:
            self._scope = scope
            if self._has_come:
                scope.cancel()
            yield
