"""Ask about pictures and sound in the test's own process."""

import os
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from inferd.backend.interface import CacheReuse
from inferd.backend.job import GenerateJob, Media, Turn
from inferd.ipc.worker import Failed, Step
from inferd.worker.llama.backend import LlamaBackend
from inferd.worker.llama.generate.sequence import PreparedPrompt
from tests.model.tiny_projector import SAMPLE_RATE
from tests.unit.worker.llama.running import Answer, collect, job

MARKER: Final = "<media 0f1e2d3c>"
ANN: Final = 1000
BEN: Final = 1001


class Medium(NamedTuple):
    """What a client sends."""

    media: Media
    data: bytes


def picture(seed: int = 0, width: int = 40, height: int = 30) -> Medium:
    """Make up a picture."""
    data = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    return Medium(
        Media(
            kind="image",
            id=f"picture {seed}",
            n_bytes=data.nbytes,
            width=width,
            height=height,
        ),
        data.tobytes(),
    )


def sound(pitch: float = 440.0, seconds: float = 1.0, **fields: Any) -> Medium:
    """Make up a sound."""
    times = np.arange(int(SAMPLE_RATE * seconds)) / SAMPLE_RATE
    data = np.sin(2 * np.pi * pitch * times).astype("<f4")
    chosen = {"sample_rate": SAMPLE_RATE, "n_bytes": data.nbytes, **fields}
    return Medium(Media(kind="audio", id=f"{pitch} Hz", **chosen), data.tobytes())


def shown(text: str, *media: Medium, **fields: Any) -> GenerateJob:
    """Ask with media where the text has ``*``, and keep what is of use."""
    chosen = {"cache": "auto", "owner": ANN, "max_tokens": 12, **fields}
    asked = {"media": tuple(each.media for each in media), "marker": MARKER, **chosen}
    turns = [Turn("user", text.replace("*", MARKER))]
    made = job(**asked)
    made.turns[:] = turns
    return made


def fds_of(media: tuple[Medium, ...]) -> list[int]:
    """Put media in files of their own."""
    fds = [os.memfd_create(each.media.id) for each in media]
    for fd, each in zip(fds, media, strict=True):
        os.write(fd, each.data)
    return fds


def prepare(
    backend: LlamaBackend, text: str, *media: Medium, **fields: Any
) -> PreparedPrompt:
    """Have a backend take a question."""
    prepared = backend.prepare(shown(text, *media, **fields), fds_of(media))
    assert isinstance(prepared, PreparedPrompt)
    return prepared


class Asked(NamedTuple):
    """What came of a question."""

    answer: Answer
    reuse: CacheReuse
    n_encoded: int
    """Parts of media that were made readable for it."""


def ask(backend: LlamaBackend, text: str, *media: Medium, **fields: Any) -> Asked:
    """Ask alone."""
    before = n_encoded(backend)
    backend.start(1, prepare(backend, text, *media, **fields))
    took = list(running(backend))
    [started] = [each for step in took for each in step.started]
    answers = collect(iter(took))
    return Asked(answers[1], started.reuse, n_encoded(backend) - before)


def running(backend: LlamaBackend) -> Iterator[Step]:
    """Advance all answers to their ends; none may fail."""
    while backend.is_busy:
        for outcome in backend.step():
            assert not isinstance(outcome, Failed), outcome.reason
            assert isinstance(outcome, Step)
            yield outcome


def n_encoded(backend: LlamaBackend) -> int:
    """Count the parts of media that were made readable so far."""
    return backend._engine._media_pipeline.projector_thread.n_encoded  # type: ignore[union-attr]
