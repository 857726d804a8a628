"""The media of jobs as remotes take them: images as PNG, audio as WAV."""

import os
import struct
import zlib
from collections.abc import Sequence
from typing import Final

import numpy as np

from inferd.backend.job import PIXEL_BYTES, Job, Media, media_of

_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_EIGHT_BITS_RGB: Final = (8, 2, 0, 0, 0)
_FASTEST: Final = 1
_WAV_BYTES_PER_SAMPLE: Final = 2
_READ_BYTES: Final = 4 * 1024 * 1024


def read_media(job: Job, fds: Sequence[int]) -> list[bytes]:
    """Read the media of a job: images as PNG, audio as the samples that came.

    Takes about a second for an image of 16 million pixels; call it in a thread.
    """
    return [
        write_png(medium, data) if medium.kind == "image" else data
        for medium, fd in zip(media_of(job), fds, strict=True)
        for data in (_read(medium, fd),)
    ]


def write_png(medium: Media, pixels: bytes) -> bytes:
    """Encode RGB pixels; without filters and with the fastest compression.

    Source: PNG Specification (Third Edition), 5 and 11.2.
    """
    row = medium.width * PIXEL_BYTES
    filtered = b"".join(
        b"\x00" + pixels[start : start + row] for start in range(0, len(pixels), row)
    )
    header = struct.pack(">IIBBBBB", medium.width, medium.height, *_EIGHT_BITS_RGB)
    chunks = (
        (b"IHDR", header),
        (b"IDAT", zlib.compress(filtered, _FASTEST)),
        (b"IEND", b""),
    )
    return _SIGNATURE + b"".join(
        struct.pack(">I", len(data))
        + name
        + data
        + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    )


def write_wav(samples: bytes, sample_rate: int) -> bytes:
    """Encode samples of 32-bit floats as WAV of 16 bits, in mono.

    Source: Multimedia Programming Interface and Data Specifications 1.0, "WAVE".
    """
    floats = np.nan_to_num(np.frombuffer(samples, "<f4"))
    data = (np.clip(floats, -1, 1) * 32767).astype("<i2").tobytes()
    rates = (sample_rate, sample_rate * _WAV_BYTES_PER_SAMPLE)
    form = struct.pack("<HHIIHH", 1, 1, *rates, _WAV_BYTES_PER_SAMPLE, 16)
    chunks = b"WAVE" + _riff(b"fmt ", form) + _riff(b"data", data)
    return _riff(b"RIFF", chunks)


def _riff(name: bytes, data: bytes) -> bytes:
    return name + struct.pack("<I", len(data)) + data


def _read(medium: Media, fd: int) -> bytes:
    parts: list[bytes] = []
    offset = 0
    while offset < medium.n_bytes:
        part = os.pread(fd, min(_READ_BYTES, medium.n_bytes - offset), offset)
        if not part:
            break
        parts.append(part)
        offset += len(part)
    return b"".join(parts)
