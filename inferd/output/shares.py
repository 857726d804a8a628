"""Which tokens a text is made of, told by their characters."""

from collections import deque
from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Share(NamedTuple, Generic[T]):
    """Characters in a row that are of one piece."""

    tokens: tuple[T, ...]
    """What is told of the piece, if this is the first of its shares."""
    n_chars: int


class Shares(Generic[T]):
    """Pieces in their order, of which characters are taken from the front.

    A piece without a character, as half of one, goes with the next character. One that is
    taken in parts goes with the first of them.
    """

    def __init__(self) -> None:
        self._waiting = deque[Share[T]]()

    def add(self, tokens: Iterable[T], n_chars: int) -> None:
        """Add a piece of so many characters, and what is told of it."""
        self._waiting.append(Share((*tokens,), n_chars))

    def take(self, n_chars: int) -> list[Share[T]]:
        """Take so many characters, or as many as there are."""
        taken: list[Share[T]] = []
        while n_chars and self._waiting:
            tokens, n_left = self._waiting.popleft()
            n_taken = min(n_left, n_chars)
            taken.append(Share(tokens, n_taken))
            n_chars -= n_taken
            if n_taken < n_left:
                self._waiting.appendleft(Share((), n_left - n_taken))
        return taken

    def skip(self, n_chars: int) -> None:
        """Pass over so many characters.

        What has characters beyond these as well is taken with them.
        """
        taken = self.take(n_chars)
        if taken and self._waiting and not self._waiting[0].tokens and taken[-1].tokens:
            _, n_left = self._waiting.popleft()
            self._waiting.appendleft(Share(taken[-1].tokens, n_left))
