"""Predict the memory that serving a whisper model takes."""

import os
from typing import Final

from inferd.backend.job import SAMPLE_BYTES
from inferd.limits.worker import SOUND_CHUNK_S, SOUND_WINDOW_S
from inferd.memory.plan import LinearSize, MemoryDemand
from inferd.models.whisper_header.header import WhisperHeader
from inferd.worker.process_memory import resident_bytes
from inferd.worker.whisper.model.file import WhisperFile
from inferd.worker.whisper.transcribe.audio import SAMPLE_RATE

GROWTH_BYTES: Final = 16 * 1024 * 1024
"""Bytes by which a worker grows as it loads and serves: libraries, threads, jobs."""

_TEXT_CELLS: Final = 512
_AUDIO_CELLS: Final = 1536
"""KV cache positions for text and for audio, as the library rounds them up."""
_PROMPT_TOKENS: Final = 228
"""Most tokens before a chunk's text: the text before it, and the task."""
_CELL_BYTES: Final = 4
"""A key and a value, of 16 bits each."""
_ATTEMPTS: Final = 7
"""Copies of the text cache that the library makes when it has to retry a chunk."""
_FLOAT_BYTES: Final = 4
_COMPUTE_BYTES: Final = 8 * 1024 * 1024
_COMPUTE_BYTES_PER_NUMBER: Final = 76_000
"""Compute buffers, fixed and per number of the model's state. The library's own log says
7.2 MB plus 75,500 bytes per number, for states of 384 to 1,280 numbers."""
_COPIES: Final = 3
"""Copies of a window's samples: as read, padded, and as energies."""
_FRAMES_PER_S: Final = 100


def predict_memory(file: WhisperFile, n_slots: int) -> MemoryDemand:
    """Return the memory that follows from a model's hyperparameters, as a lower bound.

    Args:
        file: of the model.
        n_slots: jobs that may run at once; as many may be paused with their states.
    """
    header = file.header
    [fd] = file.fds
    return MemoryDemand(
        n_ctx=header.n_text_ctx,
        is_set=True,
        has_slots=True,
        weights=os.fstat(fd).st_size,
        own=resident_bytes() + GROWTH_BYTES,
        cache=LinearSize(per_slot=_cache_bytes(header)),
        compute=LinearSize(per_slot=_compute_bytes(header)),
        pause=n_slots * state_bytes(header),
    )


def state_bytes(header: WhisperHeader) -> int:
    """Return the bytes of a job that has begun, whether it runs or is paused."""
    return _cache_bytes(header) + _compute_bytes(header)


def _cache_bytes(header: WhisperHeader) -> int:
    layers = header.n_text_layer * (_ATTEMPTS * _TEXT_CELLS + _AUDIO_CELLS)
    return (layers + _AUDIO_CELLS) * header.n_text_state * _CELL_BYTES


def _compute_bytes(header: WhisperHeader) -> int:
    """Return the bytes of compute buffers, logits, and the window of audio."""
    network = _COMPUTE_BYTES + _COMPUTE_BYTES_PER_NUMBER * header.n_audio_state
    logits = 2 * _PROMPT_TOKENS * header.n_vocab * _FLOAT_BYTES
    samples = _COPIES * SOUND_WINDOW_S * SAMPLE_RATE * SAMPLE_BYTES
    n_frames = (SOUND_WINDOW_S + SOUND_CHUNK_S) * _FRAMES_PER_S
    return network + logits + samples + n_frames * header.n_mels * _FLOAT_BYTES
