"""Model files of whisper.cpp's, made up: small, and with random weights."""

import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from inferd.worker.llama.ggml_types import BLOCKS
from inferd.worker.whisper.header import F16, F32, FREQUENCIES, MAGIC, Header
from inferd.worker.whisper.tensors import shapes

SMALL: Final = Header(
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
    header: Header = SMALL, *, words: list[bytes] | None = None, seed: int = 0
) -> bytes:
    """Write a model."""
    words = words if words is not None else texts()
    return b"".join(
        [
            MAGIC,
            struct.pack("<11i", *header),
            struct.pack("<2i", header.n_mels, FREQUENCIES),
            np.ones((header.n_mels, FREQUENCIES), np.float32).tobytes(),
            struct.pack("<i", len(words)),
            *(struct.pack("<i", len(word)) + word for word in words),
            *_tensors(header, np.random.default_rng(seed)),
        ]
    )


def write_model(path: Path, header: Header = SMALL) -> Path:
    """Write a model to a file; give its path."""
    path.write_bytes(model_bytes(header))
    return path


def _tensors(header: Header, random: np.random.Generator) -> Iterator[bytes]:
    numbers = header._asdict() | {"n_wide": 4 * header.n_audio_state}
    for name, shape in shapes(header.n_audio_layer, header.n_text_layer).items():
        sizes = [each if isinstance(each, int) else numbers[each] for each in shape]
        values = random.normal(0, 0.1, math.prod(sizes)).astype(np.float32)
        is_large = len(sizes) > 1 and not name.endswith(
            ("bias", "positional_embedding")
        )
        kind = F16 if is_large else F32
        data = values.astype(np.float16 if kind == F16 else np.float32).tobytes()
        assert len(data) == math.prod(sizes) * BLOCKS[kind][1]
        yield struct.pack("<3i", len(sizes), len(name), kind)
        yield struct.pack(f"<{len(sizes)}i", *sizes) + name.encode() + data
