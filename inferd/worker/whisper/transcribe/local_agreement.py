"""Local agreement: decide which words of live audio will not change any more.

The same seconds are transcribed repeatedly, each time with more audio after them. A word
that two passes in a row agree on, and that is not at the very end, is settled: it will not
change. Other words are open. Audio up to the end of a settled segment is not transcribed
again.
"""

import string
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from inferd.limits.worker import LIVE_MARGIN_S, LIVE_OVERLAP_S, SOUND_CHUNK_S
from inferd.worker.whisper.transcribe.inference import Piece

MARGIN_MS: Final = round(LIVE_MARGIN_S * 1000)
KEPT_MS: Final = round(LIVE_OVERLAP_S * 1000)
MAX_OPEN_MS: Final = SOUND_CHUNK_S * 1000
CUT_AFTER_MS: Final = MAX_OPEN_MS // 2
"""Length of open audio after which the next pass starts at a settled word, if no segment
ends: models that transcribe the same audio for long begin to repeat it."""
OVERLAP_WORDS: Final = 8
"""Words before such a cut that the next pass may repeat."""

_MARKS: Final = string.punctuation.encode() + b" "


class AgreementResult(NamedTuple):
    """The outcome of one pass; times count from the beginning of the audio."""

    settled: list[Piece]
    """Newly settled words, which will not change."""
    open: list[Piece]
    """Words after them, which may change."""
    start_ms: int
    """Where the next pass starts."""
    dropped: list[Piece]
    """Settled words before that, which are not transcribed again."""


class LocalAgreement:
    """Compares each transcription pass over live audio with the one before.

    A pass begins at ``start_ms``. Words are pieces with times counted from the beginning
    of the audio.
    """

    def __init__(self) -> None:
        self.start_ms = 0
        self._settled: list[Piece] = []
        """Settled words after ``start_ms``, which the next pass transcribes again."""
        self._cut_off: list[Piece] = []
        """The last words before ``start_ms``, if that is not the end of a segment."""
        self._open: list[Piece] = []
        self._end_ms = 0

    @property
    def is_all_settled(self) -> bool:
        """Whether all words before ``start_ms`` are settled and none after it."""
        return not (self._settled or self._cut_off)

    def restart_at(self, start_ms: int) -> None:
        """Start over at a later time; the words before were settled by other means."""
        self.start_ms = self._end_ms = start_ms
        self._open = []

    def update(
        self, words: Sequence[Piece], end_ms: int, *, is_last: bool
    ) -> AgreementResult:
        """Compare the words of a new pass with those of the last one.

        Args:
            words: of the audio from ``start_ms``, in order, none empty.
            end_ms: end of the transcribed audio.
            is_last: whether the audio has ended.
        """
        rest = list(words[self._n_known(words) :])
        is_full = end_ms - self.start_ms >= MAX_OPEN_MS
        is_forced = is_full and not self._settled
        if is_last:
            n_new = len(rest)
        elif is_forced:
            n_new = _n_forced(rest, end_ms)
        else:
            n_new = _n_agreed(rest, self._open, end_ms)
        new, self._open = rest[:n_new], rest[n_new:]
        if not is_last and not is_forced:
            # Both passes have them, so they end before the audio of the earlier pass.
            new = [_clipped(word, self._end_ms) for word in new]
        self._end_ms = end_ms
        self._settled += new
        dropped = self._advance(end_ms, is_full=is_full)
        return AgreementResult(new, list(self._open), self.start_ms, dropped)

    def _n_known(self, words: Sequence[Piece]) -> int:
        """Count the first words that are settled already, even if some differ now.

        Times cannot tell: those of one word differ by a second between passes.
        """
        n_settled = len(self._settled)
        if not n_settled:
            return _overlap(self._cut_off, words)
        costs = _distances(list(_normalized(self._settled)), list(_normalized(words)))
        return min(range(len(costs)), key=lambda n: (costs[n], abs(n - n_settled)))

    def _advance(self, end_ms: int, *, is_full: bool) -> list[Piece]:
        """Move ``start_ms`` to the end of the last settled segment.

        If that leaves too much open audio, move it to the end of the last settled word.
        """
        n_dropped = max(
            (n for n, word in enumerate(self._settled, 1) if word.ends_segment),
            default=0,
        )
        is_cut = not n_dropped and end_ms - self.start_ms >= CUT_AFTER_MS
        if is_cut:
            n_dropped = len(self._settled)
        dropped, self._settled = self._settled[:n_dropped], self._settled[n_dropped:]
        before_ms = self.start_ms
        if dropped:
            self._cut_off = dropped[-OVERLAP_WORDS:] if is_cut else []
            self.start_ms = max(self.start_ms, min(dropped[-1].end_ms, end_ms))
        if is_full and self.start_ms == before_ms:  # or it would be repeated for ever
            self.start_ms = end_ms - KEPT_MS
            self._open = []
        return dropped


def _clipped(word: Piece, end_ms: int) -> Piece:
    return word._replace(
        start_ms=min(word.start_ms, end_ms), end_ms=min(word.end_ms, end_ms)
    )


def _agreeing(one: Sequence[Piece], other: Sequence[Piece]) -> int:
    """Count the first words that are equal, apart from punctuation and case."""
    pairs = zip(_normalized(one), _normalized(other), strict=False)
    return next(
        (index for index, (a, b) in enumerate(pairs) if a != b),
        min(len(one), len(other)),
    )


def _overlap(before: Sequence[Piece], words: Sequence[Piece]) -> int:
    """Count the first words that repeat the end of the words before."""
    ended, begun = list(_normalized(before)), list(_normalized(words))
    return next(
        (n for n in range(len(ended), 0, -1) if ended[-n:] == begun[:n]),
        0,
    )


def _distances(one: Sequence[bytes], other: Sequence[bytes]) -> list[int]:
    """Compute the edit distance between one list and every prefix of the other."""
    costs = list(range(len(other) + 1))
    for n_changes, word in enumerate(one, 1):
        diagonal, costs[0] = costs[0], n_changes
        for n, candidate in enumerate(other, 1):
            cost = min(costs[n], costs[n - 1]) + 1
            diagonal, costs[n] = costs[n], min(cost, diagonal + (word != candidate))
    return costs


def _normalized(words: Sequence[Piece]) -> Iterator[bytes]:
    return (word.text.strip(_MARKS).lower() for word in words)


def _n_agreed(words: Sequence[Piece], before: Sequence[Piece], end_ms: int) -> int:
    """Count the first words that the earlier pass has too and that are not at the end."""
    n_same = _agreeing(words, before)
    return _n_before(words[:n_same], end_ms - MARGIN_MS)


def _n_forced(words: Sequence[Piece], end_ms: int) -> int:
    """Count the first words to settle after a single pass, as open audio is full."""
    n_early = _n_before(words, end_ms - MARGIN_MS)
    ends = [index for index in range(n_early) if words[index].ends_segment]
    return ends[-1] + 1 if ends else n_early


def _n_before(words: Sequence[Piece], limit_ms: int) -> int:
    return next(
        (index for index, word in enumerate(words) if word.end_ms > limit_ms),
        len(words),
    )
