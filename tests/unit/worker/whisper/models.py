"""Model files of whisper.cpp's, made up: small, and with random weights."""

import math
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from inferd.models.ggml_types import BLOCKS
from inferd.models.whisper_header.header import (
    F16,
    F32,
    FREQUENCIES,
    MAGIC,
    WhisperHeader,
)
from inferd.models.whisper_header.tensors import tensor_shapes

SMALL: Final = WhisperHeader(
    n_vocab=51_864,
    n_audio_ctx=1500,
    n_audio_state=8,
    n_audio_head=2,
    n_audio_layer=1,
    n_text_ctx=448,
    n_text_state=8,
    n_text_head=2,
    n_text_layer=1,
    n_mels=80,
    kind=F16,
)
"""English alone; a megabyte and a half."""
N_TEXTS: Final = 50_257
RECITED_MS: Final = 28_000
"""Where the reciter's last segment of a chunk ends."""


def texts(n: int = N_TEXTS) -> list[bytes]:
    """Make up a vocabulary: each byte, a word, and nonsense."""
    return [bytes([each]) for each in range(256)] + [
        b" hello",
        *(b"t%d" % number for number in range(257, n)),
    ]


def model_bytes(
    header: WhisperHeader = SMALL, *, words: list[bytes] | None = None, seed: int = 0
) -> bytes:
    """Write a model."""
    words = words if words is not None else texts()
    return _head(header, words) + b"".join(
        _tensors(header, np.random.default_rng(seed))
    )


def write_outline(path: Path, header: WhisperHeader) -> Path:
    """Write a model whose weights are holes, of any kind; give its path."""
    with path.open("wb") as file:
        file.write(_head(header, texts(300)))
        for name, sizes, kind in _outlines(header, header.weights_type):
            n_numbers, n_bytes = BLOCKS[kind]
            file.write(_tensor_head(name, sizes, kind))
            file.seek(math.prod(sizes) // n_numbers * n_bytes, os.SEEK_CUR)
        file.truncate()
    return path


def write_model(path: Path, header: WhisperHeader = SMALL) -> Path:
    """Write a model to a file; give its path."""
    path.write_bytes(model_bytes(header))
    return path


def _head(header: WhisperHeader, words: list[bytes]) -> bytes:
    return b"".join(
        [
            MAGIC,
            struct.pack("<11i", *header),
            struct.pack("<2i", header.n_mels, FREQUENCIES),
            np.ones((header.n_mels, FREQUENCIES), np.float32).tobytes(),
            struct.pack("<i", len(words)),
            *(struct.pack("<i", len(word)) + word for word in words),
        ]
    )


def _outlines(
    header: WhisperHeader, weights_type: int
) -> Iterator[tuple[str, list[int], int]]:
    numbers = header._asdict() | {"n_wide": 4 * header.n_audio_state}
    for name, shape in tensor_shapes(header.n_audio_layer, header.n_text_layer).items():
        sizes = [each if isinstance(each, int) else numbers[each] for each in shape]
        is_large = len(sizes) > 1 and not name.endswith(
            ("bias", "positional_embedding")
        )
        large = F16 if name.startswith("encoder.conv") else weights_type
        yield name, sizes, large if is_large else F32


def _tensor_head(name: str, sizes: list[int], kind: int) -> bytes:
    head = struct.pack("<3i", len(sizes), len(name), kind)
    return head + struct.pack(f"<{len(sizes)}i", *sizes) + name.encode()


def _tensors(header: WhisperHeader, random: np.random.Generator) -> Iterator[bytes]:
    for name, sizes, kind in _outlines(header, F16):
        values = random.normal(0, 0.1, math.prod(sizes)).astype(np.float32)
        data = values.astype(np.float16 if kind == F16 else np.float32).tobytes()
        assert len(data) == math.prod(sizes) * BLOCKS[kind][1]
        yield _tensor_head(name, sizes, kind) + data
