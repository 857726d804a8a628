"""Windows: the parts of a long recording that are passed to whisper.cpp at once.

A recording of up to ``SOUND_WINDOW_S`` is one window, and is transcribed as by whisper.cpp's
own command. In a longer one every window but the last has a limit, 30 s before its end:
chunks begin before the limit and see as much audio as they would in the whole recording.
The next window begins where the last segment ends, but no earlier than a chunk might have
begun.
"""

from typing import Final, NamedTuple

from inferd.limits.worker import SOUND_CHUNK_S, SOUND_WINDOW_S
from inferd.worker.whisper.transcribe.audio import SAMPLE_RATE, SAMPLES_PER_MS

WINDOW_SAMPLES: Final = SOUND_WINDOW_S * SAMPLE_RATE
CHUNK_SAMPLES: Final = SOUND_CHUNK_S * SAMPLE_RATE
LIMIT_MARGIN_MS: Final = 110
"""Milliseconds before a limit in which no chunk begins: the library stops ten of its units
of 10 ms before it, and rounds the limit down to one. Audio there may be untranscribed."""


class Window(NamedTuple):
    """A part of a recording."""

    first: int
    """Index of the first sample."""
    n_samples: int
    limit_ms: int = 0
    """No chunk begins at or after this time in the window; 0 in the last window."""

    @property
    def covered_ms(self) -> int:
        """Milliseconds of a window with a limit that are transcribed in any case."""
        return self.limit_ms - LIMIT_MARGIN_MS

    @property
    def first_ms(self) -> int:
        """Start of the window, counted from the beginning of the recording."""
        return self.first // SAMPLES_PER_MS

    @property
    def n_settled(self) -> int:
        """Samples of the whole recording that no later window contains."""
        return self.first + (
            self.covered_ms * SAMPLES_PER_MS if self.limit_ms else self.n_samples
        )


def window_at(first: int, n_samples: int) -> Window:
    """Return the window that begins at a sample of a recording of ``n_samples``."""
    n_left = n_samples - first
    if n_left <= WINDOW_SAMPLES:
        return Window(first, n_left)
    return Window(
        first, WINDOW_SAMPLES, (WINDOW_SAMPLES - CHUNK_SAMPLES) // SAMPLES_PER_MS
    )


def partial_window_at(first: int, n_samples: int) -> Window:
    """Return the window at a sample of live audio with ``n_samples`` so far.

    There must be considerably more samples than a chunk has.
    """
    n_available = min(n_samples - first, WINDOW_SAMPLES)
    return Window(first, n_available, (n_available - CHUNK_SAMPLES) // SAMPLES_PER_MS)


def next_start(window: Window, end_ms: int) -> int:
    """Return the sample at which the next window begins.

    Args:
        window: the transcribed window.
        end_ms: end of its last segment, counted from the beginning of the recording.
    """
    if not window.limit_ms:
        return window.first + window.n_samples
    end = max(window.covered_ms, end_ms - window.first_ms) * SAMPLES_PER_MS
    return window.first + min(end, window.n_samples)
