"""Predict what serving a whisper model takes."""

import os
from typing import Final

from inferd.fit import Demand, Line
from inferd.job import SAMPLE_BYTES
from inferd.worker.limits import SOUND_CHUNK_S, SOUND_WINDOW_S
from inferd.worker.memory import resident_bytes
from inferd.worker.whisper.files import SpeechFile
from inferd.worker.whisper.header import Header
from inferd.worker.whisper.sound import RATE

GROWTH_BYTES: Final = 16 * 1024 * 1024
"""Bytes by which a worker grows as it loads and serves: libraries, threads, jobs."""

_TEXT_CELLS: Final = 512
_SOUND_CELLS: Final = 1536
"""Positions of text and of sound, as the library rounds them up."""
_PROMPT_TOKENS: Final = 228
"""Tokens that a chunk begins with, at most: what came before, and what is to be done."""
_CELL_BYTES: Final = 4
"""A key and a value, of 16 bits each."""
_ATTEMPTS: Final = 7
"""Times the cache of a text is there, once a chunk had to be tried again."""
_FLOAT_BYTES: Final = 4
_COMPUTE_BYTES: Final = 8 * 1024 * 1024
_COMPUTE_BYTES_PER_NUMBER: Final = 76_000
"""What a chunk is computed in, by the numbers of a state. The library's own log, from 384
to 1,280 of them: 7.2 MB, and 75,500 bytes for each."""
_COPIES: Final = 3
"""Of a window's samples: what was read, what is made ready, how loud each is."""
_FRAMES_PER_S: Final = 100


def predict(file: SpeechFile, n_slots: int) -> Demand:
    """Add up what follows from a model's numbers; nothing of it can be less.

    Args:
        file: of the model.
        n_slots: jobs that are to run at once; as many may be paused with their states.
    """
    header = file.header
    [fd] = file.fds
    return Demand(
        n_ctx=header.n_text_ctx,
        is_set=True,
        has_slots=True,
        weights=os.fstat(fd).st_size,
        own=resident_bytes() + GROWTH_BYTES,
        cache=Line(per_slot=_cache_bytes(header)),
        compute=Line(per_slot=_compute_bytes(header)),
        pause=n_slots * state_bytes(header),
    )


def state_bytes(header: Header) -> int:
    """Tell what a job takes that has begun, whether it runs or is paused."""
    return _cache_bytes(header) + _compute_bytes(header)


def _cache_bytes(header: Header) -> int:
    layers = header.n_text_layer * (_ATTEMPTS * _TEXT_CELLS + _SOUND_CELLS)
    return (layers + _SOUND_CELLS) * header.n_text_state * _CELL_BYTES


def _compute_bytes(header: Header) -> int:
    """Tell what a job computes in: the network, scores, and its window of sound."""
    network = _COMPUTE_BYTES + _COMPUTE_BYTES_PER_NUMBER * header.n_audio_state
    scores = 2 * _PROMPT_TOKENS * header.n_vocab * _FLOAT_BYTES
    samples = _COPIES * SOUND_WINDOW_S * RATE * SAMPLE_BYTES
    n_frames = (SOUND_WINDOW_S + SOUND_CHUNK_S) * _FRAMES_PER_S
    return network + scores + samples + n_frames * header.n_mels * _FLOAT_BYTES
