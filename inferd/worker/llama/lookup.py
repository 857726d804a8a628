"""Guess what comes next by what came last time after the same few tokens."""

from collections.abc import Sequence
from itertools import cycle, islice
from typing import Final

import numpy as np

from inferd.worker.limits import LOOKUP_TOKENS

SHORTEST: Final = 2
"""Last tokens that have to be found again: one alone is followed by anything."""
LONGEST: Final = 3
"""Last tokens that are compared: of several places the one that is most alike counts."""
_ROOM: Final = 1024


class Lookup:
    """The tokens of one sequence, prompt and answer, to be looked through.

    They are searched, not indexed: a search of 8,192 takes 20 µs, where an index of them
    takes 15 ms to build, with everybody waiting, and megabytes to keep.

    Bounds:
        Memory: 4 bytes a token, twice at most. Time: ``LOOKUP_TOKENS`` a search.

    Laws (held by property tests): what is guessed came after the last tokens before, and
    no earlier place that is as much alike is later.
    """

    def __init__(self) -> None:
        self._tokens = np.empty(_ROOM, np.int32)
        self._n = 0

    def __len__(self) -> int:
        return self._n

    def extend(self, tokens: Sequence[int]) -> None:
        """Take tokens that the sequence got."""
        end = self._n + len(tokens)
        if end > len(self._tokens):
            room = np.empty(2 * end, np.int32)
            room[: self._n] = self._tokens[: self._n]
            self._tokens = room
        self._tokens[self._n : end] = tokens
        self._n = end

    def guess(self, n_tokens: int, likely: Sequence[int] = ()) -> list[int]:
        """Guess so many tokens; none where nothing like the last ones came before.

        Args:
            n_tokens: to guess.
            likely: what comes first, as others have it; it is not kept.
        """
        n_known = self._n
        self.extend(likely)
        source = self._after_the_like()
        self._n = n_known
        return list(islice(cycle(source), n_tokens))

    def _after_the_like(self) -> list[int]:
        """Give what follows the latest of the places most like the end."""
        window = self._tokens[max(0, self._n - LOOKUP_TOKENS) : self._n]
        places = np.flatnonzero(window[:-1] == window[-1:])
        n_alike = 1
        while n_alike < LONGEST:
            before = places[places >= n_alike] - n_alike
            if not before.size:
                break
            alike = before[window[before] == window[-1 - n_alike]]
            if not alike.size:
                break
            places = alike + n_alike
            n_alike += 1
        return window[places[-1] + 1 :].tolist() if n_alike >= SHORTEST else []
