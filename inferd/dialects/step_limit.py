"""Limit the work of translating schemas and tools of clients, by counting steps.

A translation visits nodes and produces text. A schema of a few hundred bytes can require any
amount of both, by references that branch, or by long parts that are repeated. So every node
visited and every character produced counts as a step, and steps are limited by the size of
the input. The characters of the prompt are limited too, as they cost the model more than the
client.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from inferd.limits.prompts import (
    PROMPT_BASE_CHARS,
    PROMPT_CHARS_PER_CHAR,
    TRANSLATION_STEPS,
    TRANSLATION_STEPS_PER_BYTE,
)


class TooMuchWorkError(Exception):
    """A translation would take more steps than it may; one line for the client."""

    def __init__(self) -> None:
        super().__init__("its references or repetitions expand to too much text")


class StepLimit:
    """Counter of steps with a limit."""

    def __init__(self, n_steps: int) -> None:
        self._n_allowed = n_steps
        self.n_taken = 0

    def take(self, n_steps: int) -> None:
        """Count steps; raise ``TooMuchWorkError`` over the limit."""
        self.n_taken += n_steps
        if self.n_taken > self._n_allowed:
            raise TooMuchWorkError


_effort: Final = ContextVar[StepLimit | None]("effort", default=None)


def max_steps(n_bytes: int) -> int:
    """Return the limit of steps for ``n_bytes`` of input."""
    return TRANSLATION_STEPS + TRANSLATION_STEPS_PER_BYTE * n_bytes


def max_prompt_chars(n_chars: int) -> int:
    """Return the limit of prompt characters for ``n_chars`` of input."""
    return PROMPT_BASE_CHARS + PROMPT_CHARS_PER_CHAR * n_chars


@contextmanager
def limited_steps(n_steps: int) -> Iterator[StepLimit]:
    """Limit the steps taken in a block; they do not count for an enclosing block.

    Args:
        n_steps: nodes and characters together.

    Raises:
        TooMuchWorkError: the block took more steps.
    """
    effort = StepLimit(n_steps)
    token = _effort.set(effort)
    try:
        yield effort
    finally:
        _effort.reset(token)


def step(n_steps: int = 1) -> None:
    """Count nodes visited or characters produced.

    Raises:
        TooMuchWorkError: the limit of the current block is exceeded.
    """
    if (effort := _effort.get()) is not None:
        effort.take(n_steps)
