"""Count the work of translating what a client wrote, and end it at a bound.

Translations visit nodes and write text. A schema of a few hundred bytes can ask for as much
of both as one likes: by references that branch, or by something long that is repeated for
each of many. So each node and each character counts as a step, and steps are bounded by
the size of what was sent; and so are the characters of the prompt, which costs the model
more than it does who writes it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from inferd.limits import (
    EFFORT_STEPS,
    EFFORT_STEPS_PER_BYTE,
    WRITTEN_CHARS,
    WRITTEN_CHARS_PER_CHAR,
)


class TooMuchWorkError(Exception):
    """A translation would take more steps than it may; one line for the client."""

    def __init__(self) -> None:
        super().__init__("it refers to too much, or repeats too much of it")


class Effort:
    """Steps that are left, and those that were taken."""

    def __init__(self, n_steps: int) -> None:
        self._n_allowed = n_steps
        self.n_taken = 0

    def take(self, n_steps: int) -> None:
        """Take some; raises ``TooMuchWorkError`` where there are no more."""
        self.n_taken += n_steps
        if self.n_taken > self._n_allowed:
            raise TooMuchWorkError


_effort: Final = ContextVar[Effort | None]("effort", default=None)


def allowed_for(n_bytes: int) -> int:
    """Give the steps that work on so many bytes may take."""
    return EFFORT_STEPS + EFFORT_STEPS_PER_BYTE * n_bytes


def writable_for(n_chars: int) -> int:
    """Give the characters of a prompt that may come of so many that were sent."""
    return WRITTEN_CHARS + WRITTEN_CHARS_PER_CHAR * n_chars


@contextmanager
def bounded(n_steps: int) -> Iterator[Effort]:
    """Bound what is done inside, on its own: what is around it counts no step of it.

    Args:
        n_steps: nodes and characters together.

    Raises:
        TooMuchWorkError: from inside, at the bound.
    """
    effort = Effort(n_steps)
    token = _effort.set(effort)
    try:
        yield effort
    finally:
        _effort.reset(token)


def step(n_steps: int = 1) -> None:
    """Note that some nodes are visited, or characters written.

    Raises:
        TooMuchWorkError: that is more than may be.
    """
    if (effort := _effort.get()) is not None:
        effort.take(n_steps)
