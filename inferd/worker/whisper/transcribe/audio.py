"""Audio samples in a file, checked as they are read."""

import os
from typing import Final

import numpy as np
import numpy.typing as npt

from inferd.backend.job import SAMPLE_BYTES
from inferd.limits.worker import SAMPLE_MAX
from inferd.worker.backend import RefusedError

SAMPLE_RATE: Final = 16_000
"""Samples per second that whisper models take."""
SAMPLES_PER_MS: Final = SAMPLE_RATE // 1000
"""Samples per millisecond."""
POSITIONS_PER_S: Final = 50
"""Encoder positions per second of audio; they count as its tokens."""

_CHECKED_AT_ONCE: Final = 1024 * 1024

Samples = npt.NDArray[np.float32]
"""``(samples,)``, one channel."""


class AudioFile:
    """An audio file of little-endian 32-bit floats, one channel.

    Args:
        fd: of the file; the caller keeps ownership.
        name: the client's id of the attachment.
        n_samples: samples in it so far.
    """

    def __init__(self, fd: int, name: str, n_samples: int) -> None:
        self.fd = fd
        self.name = name
        self.n_samples = n_samples

    def check(self) -> None:
        """Check that all samples are finite and within ``SAMPLE_MAX``.

        Raises:
            RefusedError: one is not.
        """
        for first in range(0, self.n_samples, _CHECKED_AT_ONCE):
            self.read(first, min(_CHECKED_AT_ONCE, self.n_samples - first))

    def read(self, first: int, n: int) -> Samples:
        """Read samples.

        Raises:
            RefusedError: one is not finite, over ``SAMPLE_MAX``, or missing.
        """
        samples = np.empty(n, np.dtype("<f4"))
        buffer = samples.data.cast("B")
        offset = first * SAMPLE_BYTES
        while buffer:
            n_bytes = os.preadv(self.fd, [buffer], offset)
            if n_bytes == 0:
                raise RefusedError(
                    f'attachment "{self.name}" ends before sample {first + n}'
                )
            buffer = buffer[n_bytes:]
            offset += n_bytes
        self._check_samples(samples, first)
        return samples

    def _check_samples(self, samples: Samples, first: int) -> None:
        for begin in range(0, len(samples), _CHECKED_AT_ONCE):
            part = samples[begin : begin + _CHECKED_AT_ONCE]
            is_valid = np.abs(part) <= SAMPLE_MAX  # false for NaN
            if not is_valid.all():
                index = int(is_valid.argmin())
                fault = (
                    f"over {SAMPLE_MAX:.0f}"
                    if np.isfinite(part[index])
                    else "not finite"
                )
                raise RefusedError(
                    f'attachment "{self.name}": sample {first + begin + index} is {fault}'
                )


def positions(n_samples: int) -> int:
    """Return the number of encoder positions that audio takes."""
    return -(-n_samples * POSITIONS_PER_S // SAMPLE_RATE)
