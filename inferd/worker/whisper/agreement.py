"""Which words of a sound that still comes are settled.

The same seconds are heard again and again, each time with some more behind them. What two
hearings in a row agree on, and what does not stand at the very end, will not change: it is
settled. The rest may. What is settled up to the end of a segment need not be heard again.
"""

import string
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from inferd.worker.limits import LIVE_KEPT_S, LIVE_MARGIN_S, SOUND_CHUNK_S
from inferd.worker.whisper.listening import Piece

MARGIN_MS: Final = round(LIVE_MARGIN_S * 1000)
KEPT_MS: Final = round(LIVE_KEPT_S * 1000)
FULL_MS: Final = SOUND_CHUNK_S * 1000
LONG_MS: Final = FULL_MS // 2
"""From here on it goes on at a settled word, if no segment ends: models that hear the same
for long begin to repeat it."""
OVERLAP: Final = 8
"""Words before such a place that may be heard behind it once more."""

_MARKS: Final = string.punctuation.encode() + b" "


class Agreed(NamedTuple):
    """What came of a hearing; times count from the sound's beginning."""

    settled: list[Piece]
    """Words that will not change."""
    open: list[Piece]
    """Those after them."""
    start_ms: int
    """From where on the sound is to be heard next."""
    passed: list[Piece]
    """Settled words that are not heard again."""


class Agreement:
    """Compares each hearing with the one before.

    Each begins at ``start_ms``; words are pieces with times from the sound's beginning.
    """

    def __init__(self) -> None:
        self.start_ms = 0
        self._settled: list[Piece] = []
        """Of those that are heard again."""
        self._cut_off: list[Piece] = []
        """The last words before the start, where that is no segment's end."""
        self._open: list[Piece] = []
        self._end_ms = 0

    @property
    def is_at_a_seam(self) -> bool:
        """Whether all words before ``start_ms`` are settled, and none behind it."""
        return not (self._settled or self._cut_off)

    def go_on_at(self, start_ms: int) -> None:
        """Begin anew further on: all words before are settled by other means."""
        self.start_ms = self._end_ms = start_ms
        self._open = []

    def hear(self, words: Sequence[Piece], end_ms: int, *, is_last: bool) -> Agreed:
        """Take the words between ``start_ms`` and the end of what there is.

        Args:
            words: in order, none empty.
            end_ms: of what was heard.
            is_last: whether nothing will come after it.
        """
        rest = list(words[self._n_known(words) :])
        is_full = end_ms - self.start_ms >= FULL_MS
        is_forced = is_full and not self._settled
        if is_last:
            n_new = len(rest)
        elif is_forced:
            n_new = _n_forced(rest, end_ms)
        else:
            n_new = _n_agreed(rest, self._open, end_ms)
        new, self._open = rest[:n_new], rest[n_new:]
        if not is_last and not is_forced:
            # Both heard them, so they were said before the first one's end.
            new = [_by(self._end_ms, word) for word in new]
        self._end_ms = end_ms
        self._settled += new
        passed = self._pass(end_ms, is_full=is_full)
        return Agreed(new, list(self._open), self.start_ms, passed)

    def _n_known(self, words: Sequence[Piece]) -> int:
        """Count the first words that are settled already, though some sound otherwise now.

        Their times would not do: those of one word differ by a second between hearings.
        """
        n_settled = len(self._settled)
        if not n_settled:
            return _overlap(self._cut_off, words)
        costs = _distances(list(_bare(self._settled)), list(_bare(words)))
        return min(
            range(len(costs)), key=lambda place: (costs[place], abs(place - n_settled))
        )

    def _pass(self, end_ms: int, *, is_full: bool) -> list[Piece]:
        """Move on to the end of the last settled segment, or word if it is long ago."""
        n_passed = max(
            (place for place, each in enumerate(self._settled, 1) if each.ends_segment),
            default=0,
        )
        is_cut = not n_passed and end_ms - self.start_ms >= LONG_MS
        if is_cut:
            n_passed = len(self._settled)
        passed, self._settled = self._settled[:n_passed], self._settled[n_passed:]
        before_ms = self.start_ms
        if passed:
            self._cut_off = passed[-OVERLAP:] if is_cut else []
            self.start_ms = max(self.start_ms, min(passed[-1].end_ms, end_ms))
        if is_full and self.start_ms == before_ms:  # or it would be heard for ever
            self.start_ms = end_ms - KEPT_MS
            self._open = []
        return passed


def _by(end_ms: int, word: Piece) -> Piece:
    return word._replace(
        start_ms=min(word.start_ms, end_ms), end_ms=min(word.end_ms, end_ms)
    )


def _agreeing(one: Sequence[Piece], other: Sequence[Piece]) -> int:
    """Count the first words that are the same, but for marks and capitals."""
    pairs = zip(_bare(one), _bare(other), strict=False)
    return next(
        (place for place, (a, b) in enumerate(pairs) if a != b),
        min(len(one), len(other)),
    )


def _overlap(before: Sequence[Piece], words: Sequence[Piece]) -> int:
    """Count the first words that end what was before."""
    ended, begun = list(_bare(before)), list(_bare(words))
    return next(
        (n for n in range(len(ended), 0, -1) if ended[-n:] == begun[:n]),
        0,
    )


def _distances(one: Sequence[bytes], other: Sequence[bytes]) -> list[int]:
    """Count, for each beginning of the other, the changes that make one of it."""
    costs = list(range(len(other) + 1))
    for n_changes, word in enumerate(one, 1):
        diagonal, costs[0] = costs[0], n_changes
        for place, each in enumerate(other, 1):
            cost = min(costs[place], costs[place - 1]) + 1
            diagonal, costs[place] = (
                costs[place],
                min(cost, diagonal + (word != each)),
            )
    return costs


def _bare(words: Sequence[Piece]) -> Iterator[bytes]:
    return (word.text.strip(_MARKS).lower() for word in words)


def _n_agreed(words: Sequence[Piece], before: Sequence[Piece], end_ms: int) -> int:
    """Count the first words that were heard before, too, and are not the very last."""
    n_same = _agreeing(words, before)
    return _n_before(words[:n_same], end_ms - MARGIN_MS)


def _n_forced(words: Sequence[Piece], end_ms: int) -> int:
    """Count the first words that must do, though nobody heard them twice."""
    n_early = _n_before(words, end_ms - MARGIN_MS)
    ends = [place for place in range(n_early) if words[place].ends_segment]
    return ends[-1] + 1 if ends else n_early


def _n_before(words: Sequence[Piece], limit_ms: int) -> int:
    return next(
        (place for place, each in enumerate(words) if each.end_ms > limit_ms),
        len(words),
    )
