"""Hear sounds in the test's own process: no daemon, no pipe."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from inferd.backend.job import Media, TranscribeJob
from inferd.config.kinds.whispercpp import WhisperCppSettings
from inferd.ipc.worker import (
    AudioNeeded,
    Failed,
    Loaded,
    Segment,
    Transcribed,
    TranscriptEnded,
)
from inferd.worker.backend import StepOutcome
from inferd.worker.whisper.backend import WhisperBackend
from inferd.worker.whisper.transcribe.audio import SAMPLE_RATE

Samples = npt.NDArray[np.float32]


def load(path: Path, **settings: Any) -> tuple[WhisperBackend, Loaded]:
    """Load a model, on one thread."""
    chosen = WhisperCppSettings(name="w", model=str(path), n_threads=1, **settings)
    backend = WhisperBackend(chosen, n_slots=3)
    return backend, backend.load(lambda _: None)


def noise(seconds: float, seed: int = 0) -> Samples:
    """Make up a sound."""
    random = np.random.default_rng(seed)
    return random.normal(0, 0.1, round(seconds * SAMPLE_RATE)).astype(np.float32)


def descriptor(samples: Samples) -> int:
    """Put samples in a file of their own; give its descriptor."""
    fd = os.memfd_create("sound", os.MFD_CLOEXEC)
    os.write(fd, samples.tobytes())
    return fd


def job(samples: Samples | None = None, **fields: Any) -> TranscribeJob:
    """Ask for all that is heard; without samples they are to come."""
    audio = Media(
        kind="audio",
        id="a",
        n_bytes=0 if samples is None else samples.nbytes,
        sample_rate=SAMPLE_RATE,
        is_open=samples is None,
    )
    return TranscribeJob(audio=audio, **fields)


@dataclass
class Heard:
    """All that came of a job."""

    segments: list[Segment] = field(default_factory=list)
    partials: list[Segment] = field(default_factory=list)
    n_tokens: int = 0
    n_bytes_read: int = 0
    ends: list[TranscriptEnded | Failed] = field(default_factory=list)

    def take(self, outcome: StepOutcome) -> None:
        """Add what came of a step."""
        match outcome:
            case Transcribed():
                self.segments += outcome.segments
                self.n_tokens += outcome.n_tokens
                self.n_bytes_read = max(self.n_bytes_read, outcome.n_bytes_read)
                self.partials += [outcome.partial] if outcome.partial else []
            case TranscriptEnded() | Failed():
                self.ends.append(outcome)
            case _:
                raise AssertionError(outcome)

    @property
    def text(self) -> bytes:
        """All of it."""
        return b"".join(segment.text for segment in self.segments)

    @property
    def end(self) -> TranscriptEnded:
        """Its only end."""
        [end] = self.ends
        assert isinstance(end, TranscriptEnded), end
        return end

    @property
    def failure(self) -> Failed:
        """Its only end."""
        [end] = self.ends
        assert isinstance(end, Failed), end
        return end


def start(
    backend: WhisperBackend, ticket: int, samples: Samples, **fields: Any
) -> None:
    """Start a job whose sound is there."""
    prepared = backend.prepare(job(samples, **fields), [descriptor(samples)])
    backend.start(ticket, prepared)


def run(backend: WhisperBackend) -> dict[int, Heard]:
    """Step until all that can be heard is heard; give it by ticket."""
    heard: dict[int, Heard] = {}
    while backend.is_busy:
        for outcome in backend.step():
            if isinstance(outcome, AudioNeeded):
                continue
            assert isinstance(outcome, Transcribed | TranscriptEnded | Failed)
            heard.setdefault(outcome.ticket, Heard()).take(outcome)
    return heard


def hear(backend: WhisperBackend, samples: Samples, **fields: Any) -> Heard:
    """Hear a sound that is there, by itself."""
    start(backend, 1, samples, **fields)
    return run(backend)[1]


def hear_live(
    backend: WhisperBackend, samples: Samples, n_each: int, **fields: Any
) -> Heard:
    """Hear a sound that comes in pieces of so many samples, each once the last was heard."""
    backend.start(1, backend.prepare(job(**fields), [descriptor(samples)]))
    whole = Heard()
    for end in range(n_each, len(samples) + n_each, n_each):
        n_bytes = min(end, len(samples)) * 4
        backend.append_audio(1, n_bytes, is_last=end >= len(samples))
        heard = run(backend).get(1, Heard())
        whole.segments += heard.segments
        whole.partials += heard.partials
        whole.n_tokens += heard.n_tokens
        whole.n_bytes_read = max(whole.n_bytes_read, heard.n_bytes_read)
        whole.ends += heard.ends
    return whole
