"""Which part of a long sound is handed to whisper.cpp at once.

A sound of up to ``SOUND_WINDOW_S`` is one window, and heard as by whisper.cpp's own
command. Of a longer one each window but the last has a limit, 30 s before its end: every
chunk begins before it and sees as much of the sound as it would in the whole. The next
window begins where the last segment ends, but no earlier than a chunk might have begun.
"""

from typing import Final, NamedTuple

from inferd.worker.limits import SOUND_CHUNK_S, SOUND_WINDOW_S
from inferd.worker.whisper.sound import MS, RATE

WINDOW: Final = SOUND_WINDOW_S * RATE
CHUNK: Final = SOUND_CHUNK_S * RATE
LEFT_MS: Final = 110
"""Milliseconds before a limit in which no chunk begins: the library stops at ten of its
units of 10 ms, and rounds the limit down to one. What is there may be unheard."""


class Window(NamedTuple):
    """A part of a sound."""

    first: int
    """Its first sample."""
    n_samples: int
    limit_ms: int = 0
    """No chunk begins from here on, counted from its beginning; 0 where it is the last."""

    @property
    def heard_ms(self) -> int:
        """How much of a window with a limit is heard, whatever is found in it."""
        return self.limit_ms - LEFT_MS

    @property
    def first_ms(self) -> int:
        """Where it begins."""
        return self.first // MS

    @property
    def n_settled(self) -> int:
        """Samples of the whole sound that no later window has."""
        return self.first + (self.heard_ms * MS if self.limit_ms else self.n_samples)


def window_at(first: int, n_samples: int) -> Window:
    """Give the window that begins at a sample of a sound of so many."""
    n_left = n_samples - first
    if n_left <= WINDOW:
        return Window(first, n_left)
    return Window(first, WINDOW, (WINDOW - CHUNK) // MS)


def ahead_at(first: int, n_samples: int) -> Window:
    """Give the window at a sample of a sound of which no more than so many have come.

    There have to be a good deal more than a chunk.
    """
    n_there = min(n_samples - first, WINDOW)
    return Window(first, n_there, (n_there - CHUNK) // MS)


def after(window: Window, end_ms: int) -> int:
    """Tell the sample at which the next window begins.

    Args:
        window: that was heard.
        end_ms: where its last segment ends, counted from the sound's beginning.
    """
    if not window.limit_ms:
        return window.first + window.n_samples
    end = max(window.heard_ms, end_ms - window.first_ms) * MS
    return window.first + min(end, window.n_samples)
