"""Samples of a sound, read from its file piece by piece, and checked."""

import os
from typing import Final

import numpy as np
import numpy.typing as npt

from inferd.job import SAMPLE_BYTES
from inferd.worker.backend import RefusedError
from inferd.worker.limits import SOUND_MAX

RATE: Final = 16_000
"""Samples a second that whisper models hear."""
MS: Final = RATE // 1000
"""Samples a millisecond."""
POSITIONS_PER_S: Final = 50
"""Places that a model has for a second of sound: what stands for tokens of it."""

_CHECKED_AT_ONCE: Final = 1024 * 1024

Samples = npt.NDArray[np.float32]
"""``(samples,)``, one channel."""


class Sound:
    """A sound in a file.

    Args:
        fd: of the file, little-endian 32-bit floats; it stays the caller's.
        name: what the client calls it.
        n_samples: that there are so far.
    """

    def __init__(self, fd: int, name: str, n_samples: int) -> None:
        self.fd = fd
        self.name = name
        self.n_samples = n_samples

    def check(self) -> None:
        """See that all samples are such as a model can hear.

        Raises:
            RefusedError: one is not.
        """
        for first in range(0, self.n_samples, _CHECKED_AT_ONCE):
            self.read(first, min(_CHECKED_AT_ONCE, self.n_samples - first))

    def read(self, first: int, n: int) -> Samples:
        """Read samples.

        Raises:
            RefusedError: one is no finite number, or far too large, or not there.
        """
        samples = np.empty(n, np.dtype("<f4"))
        room = samples.data.cast("B")
        place = first * SAMPLE_BYTES
        while room:
            n_bytes = os.preadv(self.fd, [room], place)
            if n_bytes == 0:
                raise RefusedError(f'attachment "{self.name}" ends too soon')
            room = room[n_bytes:]
            place += n_bytes
        self._refuse_unsound(samples, first)
        return samples

    def _refuse_unsound(self, samples: Samples, first: int) -> None:
        for begin in range(0, len(samples), _CHECKED_AT_ONCE):
            part = samples[begin : begin + _CHECKED_AT_ONCE]
            is_sound = np.abs(part) <= SOUND_MAX  # false of what is no number
            if not is_sound.all():
                place = int(is_sound.argmin())
                what = (
                    f"over {SOUND_MAX:.0f}"
                    if np.isfinite(part[place])
                    else "not finite"
                )
                raise RefusedError(
                    f'attachment "{self.name}": sample {first + begin + place} is {what}'
                )


def positions(n_samples: int) -> int:
    """Tell how many places of a model so much sound takes."""
    return -(-n_samples * POSITIONS_PER_S // RATE)
