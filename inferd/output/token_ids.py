"""Assign the ids of an answer's tokens to its blocks."""

from collections import deque
from collections.abc import Iterable
from typing import Literal

from inferd.output.parser import CharRun


class TokenIds:
    """The ids of an answer's tokens, each of which is taken once, in order.

    A token goes with the block that its first character is in. One of a marker, which is in
    no block, goes with the block after it; and so does one without a character of its own.
    """

    def __init__(self) -> None:
        self._waiting = deque[tuple[int, int]]()  # where a token begins, and its id
        self._n_chars = 0
        self._runs = deque[CharRun]()
        self._end = 0  # of the characters whose tokens were taken
        self._calls_left = 0  # of a region whose tokens were taken with its first call

    def add(self, ids: Iterable[int], n_chars: int) -> None:
        """Append the tokens of the next ``n_chars`` characters."""
        self._waiting.extend((self._n_chars, each) for each in ids)
        self._n_chars += n_chars

    def parsed(self, runs: Iterable[CharRun]) -> None:
        """Note what the next characters are."""
        self._runs.extend(runs)

    def of_chars(self, kind: Literal["text", "thought"], n_chars: int) -> list[int]:
        """Take the tokens up to the end of the next ``n_chars`` characters of a kind."""
        while n_chars and self._runs:
            run = self._runs.popleft()
            n_taken = min(n_chars, run.n_chars) if run.kind == kind else run.n_chars
            self._end += n_taken
            if run.kind == kind:
                n_chars -= n_taken
            if n_taken < run.n_chars:
                self._runs.appendleft(run._replace(n_chars=run.n_chars - n_taken))
        return self._taken()

    def of_call(self) -> list[int]:
        """Take the tokens of the next call; all of its region, if it is the first there."""
        if self._calls_left:
            self._calls_left -= 1
            return []
        while self._runs:
            run = self._runs.popleft()
            self._end += run.n_chars
            if run.kind == "calls":
                self._calls_left = run.n_calls - 1
                break
        return self._taken()

    def rest(self) -> list[int]:
        """Return the tokens that were not taken."""
        return [token for _, token in self._waiting]

    def _taken(self) -> list[int]:
        taken: list[int] = []
        while self._waiting and self._waiting[0][0] < self._end:
            taken.append(self._waiting.popleft()[1])
        return taken
