"""Prompt lookup: predict tokens from an earlier occurrence of the last few tokens."""

from collections.abc import Sequence
from itertools import cycle, islice
from typing import Final

import numpy as np

from inferd.limits.worker import LOOKUP_TOKENS

MIN_MATCH_TOKENS: Final = 2
"""Shortest match at the end of a sequence: a single token predicts too little."""
MAX_MATCH_TOKENS: Final = 3
"""Longest match that is compared; of several occurrences the longest match is used."""
_INITIAL_CAPACITY: Final = 1024


class TokenLookup:
    """Searchable tokens of one sequence, prompt and answer.

    They are searched, not indexed: searching 8,192 tokens takes 20 µs, while building an
    index of them takes 15 ms, during which all answers wait, and megabytes of memory.

    Bounds:
        Memory: 4 bytes per token, with capacity for twice as many. Time: a search compares
        ``LOOKUP_TOKENS`` tokens.

    Laws (held by property tests): a prediction followed the last tokens before, and is taken
    from the latest of the longest matches.
    """

    def __init__(self) -> None:
        self._tokens = np.empty(_INITIAL_CAPACITY, np.int32)
        self._n = 0

    def __len__(self) -> int:
        return self._n

    def extend(self, tokens: Sequence[int]) -> None:
        """Append tokens of the sequence."""
        end = self._n + len(tokens)
        if end > len(self._tokens):
            larger = np.empty(2 * end, np.int32)
            larger[: self._n] = self._tokens[: self._n]
            self._tokens = larger
        self._tokens[self._n : end] = tokens
        self._n = end

    def predict(self, n_tokens: int, likely: Sequence[int] = ()) -> list[int]:
        """Predict ``n_tokens`` tokens; none if the last ones did not occur before.

        Args:
            n_tokens: number of tokens.
            likely: tokens that are assumed to come first; they are not stored.
        """
        n_known = self._n
        self.extend(likely)
        source = self._after_longest_match()
        self._n = n_known
        return list(islice(cycle(source), n_tokens))

    def _after_longest_match(self) -> list[int]:
        """Return the tokens after the latest of the longest matches."""
        window = self._tokens[max(0, self._n - LOOKUP_TOKENS) : self._n]
        ends = np.flatnonzero(window[:-1] == window[-1:])
        n_matching = 1
        while n_matching < MAX_MATCH_TOKENS:
            before = ends[ends >= n_matching] - n_matching
            if not before.size:
                break
            matching = before[window[before] == window[-1 - n_matching]]
            if not matching.size:
                break
            ends = matching + n_matching
            n_matching += 1
        return window[ends[-1] + 1 :].tolist() if n_matching >= MIN_MATCH_TOKENS else []
