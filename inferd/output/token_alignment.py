"""Align tokens with text by counting characters."""

from collections import deque
from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class AlignedSpan(NamedTuple, Generic[T]):
    """Consecutive characters of one piece."""

    tokens: tuple[T, ...]
    """The tokens of the piece, in the first span of it; empty in later ones."""
    n_chars: int


class TokenAlignment(Generic[T]):
    """Queue of pieces with their tokens, taken from the front by characters.

    A piece may have no whole character: its tokens go with the character that it begins. If
    a piece is taken in parts, its tokens go with the first part.
    """

    def __init__(self) -> None:
        self._waiting = deque[AlignedSpan[T]]()

    def add(self, tokens: Iterable[T], n_chars: int) -> None:
        """Append a piece of ``n_chars`` characters with its tokens."""
        self._waiting.append(AlignedSpan((*tokens,), n_chars))

    def take(self, n_chars: int) -> list[AlignedSpan[T]]:
        """Take ``n_chars`` characters, or as many as there are."""
        taken: list[AlignedSpan[T]] = []
        while n_chars and self._waiting:
            tokens, n_left = self._waiting.popleft()
            n_taken = min(n_left, n_chars)
            taken.append(AlignedSpan(tokens, n_taken))
            n_chars -= n_taken
            if n_taken < n_left:
                self._waiting.appendleft(AlignedSpan((), n_left - n_taken))
        return taken

    def skip(self, n_chars: int) -> None:
        """Drop ``n_chars`` characters.

        The tokens of a piece that extends beyond them stay with the rest of the piece.
        """
        taken = self.take(n_chars)
        if taken and self._waiting and not self._waiting[0].tokens and taken[-1].tokens:
            _, n_left = self._waiting.popleft()
            self._waiting.appendleft(AlignedSpan(taken[-1].tokens, n_left))
