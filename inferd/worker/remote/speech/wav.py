"""Samples as a WAV file."""

import struct
import sys
from array import array
from typing import Final

_BYTES_PER_SAMPLE: Final = 2
_BITS: Final = 16
_PCM: Final = 1
_MONO: Final = 1
_LOUDEST: Final = 2**15 - 1


def write_wav(samples: bytes, sample_rate: int) -> bytes:
    """Encode 32-bit floats of one channel as 16 bits; takes some 2 s for ten minutes.

    Source: Multimedia Programming Interface and Data Specifications 1.0, "WAVE".
    """
    floats = array("f", samples)
    # NaN becomes the loudest sample: ``min`` returns its first argument then
    data = array("h", (int(max(-1.0, min(1.0, x)) * _LOUDEST) for x in floats))
    if sys.byteorder == "big":
        data.byteswap()
    byte_rate = sample_rate * _BYTES_PER_SAMPLE
    header = struct.pack(
        "<HHIIHH", _PCM, _MONO, sample_rate, byte_rate, _BYTES_PER_SAMPLE, _BITS
    )
    chunks = b"WAVE" + _chunk(b"fmt ", header) + _chunk(b"data", data.tobytes())
    return _chunk(b"RIFF", chunks)


def _chunk(name: bytes, data: bytes) -> bytes:
    return name + struct.pack("<I", len(data)) + data
