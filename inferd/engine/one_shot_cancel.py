"""A one-shot event that cancels a block."""

from collections.abc import Iterator
from contextlib import contextmanager

import trio


class OneShotCancel:
    """A one-shot event that cancels the enclosed block; one block at a time.

    Cost: one cancel scope for the task inside the block, and no extra task.
    """

    def __init__(self) -> None:
        self._has_fired = False
        self._scope: trio.CancelScope | None = None

    def fire(self) -> None:
        """Cancel the block that is entered, and all blocks that are entered later."""
        self._has_fired = True
        if self._scope is not None:
            self._scope.cancel()

    @contextmanager
    def until_fired(self) -> Iterator[None]:
        """Run the body; leave it at the first checkpoint after ``fire``."""
        with trio.CancelScope() as scope:
            self._scope = scope
            if self._has_fired:
                scope.cancel()
            yield
