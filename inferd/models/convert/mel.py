"""The mel filters of Whisper's spectrogram, on Slaney's scale.

Every filter is a triangle of the same area over the frequencies of a Fourier transform.
"""

import math

import numpy as np
import numpy.typing as npt

SAMPLE_RATE = 16_000
N_FFT = 400

_LINEAR_HZ = 200 / 3
"""Width of a mel below the knee; above it the scale is logarithmic."""
_KNEE_HZ = 1000.0
_KNEE_MEL = _KNEE_HZ / _LINEAR_HZ
_STEP = math.log(6.4) / 27


def mel_filters(n_mels: int) -> npt.NDArray[np.float32]:
    """Compute the filters, ``(n_mels, N_FFT / 2 + 1)`` float32."""
    top = _mel(SAMPLE_RATE / 2)
    edges = np.array([_hertz(top * at / (n_mels + 1)) for at in range(n_mels + 2)])
    frequencies = np.linspace(0, SAMPLE_RATE / 2, N_FFT // 2 + 1)
    widths = np.diff(edges)[:, None]
    ahead = edges[:, None] - frequencies
    rising, falling = -ahead[:-2] / widths[:-1], ahead[2:] / widths[1:]
    triangles = np.maximum(0, np.minimum(rising, falling))
    areas = (edges[2:] - edges[:-2])[:, None] / 2
    return np.asarray(triangles / areas, np.float32)


def _mel(hertz: float) -> float:
    if hertz < _KNEE_HZ:
        return hertz / _LINEAR_HZ
    return _KNEE_MEL + math.log(hertz / _KNEE_HZ) / _STEP


def _hertz(mel: float) -> float:
    if mel < _KNEE_MEL:
        return mel * _LINEAR_HZ
    return _KNEE_HZ * math.exp(_STEP * (mel - _KNEE_MEL))
