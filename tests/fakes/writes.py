"""Count what each step of the event loop offers to sockets."""

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import pytest
import trio


class WriteSteps(trio.abc.Instrument):
    """Counts bytes by the step of a task in which they were offered.

    What a socket takes of them is up to the other side: one that reads as fast as it is
    written to takes all.
    """

    def __init__(self) -> None:
        self.n_bytes: Counter[int] = Counter()
        self._n_steps = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Begin a step."""
        self._n_steps += 1

    def offer(self, data: bytes | bytearray | memoryview) -> None:
        """Note that a socket was offered bytes."""
        self.n_bytes[self._n_steps] += len(data)

    @contextmanager
    def counting(self) -> Iterator[Self]:
        """Count while inside."""
        trio.lowlevel.add_instrument(self)
        try:
            yield self
        finally:
            trio.lowlevel.remove_instrument(self)


@contextmanager
def os_writes(monkeypatch: pytest.MonkeyPatch) -> Iterator[WriteSteps]:
    """Count what ``os.write`` is given while inside."""
    write = os.write
    with WriteSteps().counting() as steps, monkeypatch.context() as patch:

        def count(fd: int, data: Any) -> int:
            steps.offer(data)
            return write(fd, data)

        patch.setattr(os, "write", count)
        yield steps
