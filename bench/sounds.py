"""Sounds for the measures of speech: a recording made longer, and sentences spoken here.

All are there twice: as a file that whisper.cpp's command line reads, and as the samples
that a client sends. The values are the same.
"""

import subprocess
import sys
import wave
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

SAMPLE_RATE: Final = 16_000
FULL_SCALE: Final = 32768
SPEAKER: Final = "espeak-ng"
VOICE: Final = ("-v", "en-us", "-s", "150")
"""Words a minute: somewhat slower than it would speak."""

SENTENCES: Final = (
    "The quick brown fox jumps over the lazy dog.",
    "She sells fresh bread and butter every Monday morning.",
    "Our train leaves the station at half past seven.",
    "Please close the window before you go to sleep.",
    "The river runs through the middle of the old town.",
    "My brother bought a red bicycle for his birthday.",
    "It has been raining since early this afternoon.",
    "They walked along the beach until the sun went down.",
    "The doctor asked him to rest for a few days.",
    "There are twelve months in a year and seven days in a week.",
    "We had dinner at a small restaurant near the harbor.",
    "The children are playing football in the garden.",
    "I would like a cup of tea with milk and sugar.",
    "The library opens at nine o'clock on weekdays.",
    "He forgot his umbrella on the bus again.",
    "Water boils at one hundred degrees.",
    "The teacher wrote the answer on the blackboard.",
    "A good friend is better than a thousand coins.",
    "The mountain was covered with snow in the winter.",
    "Her grandmother told stories about the war.",
    "The meeting will start in ten minutes.",
    "Nobody knows what will happen tomorrow.",
    "The cat slept on the warm kitchen floor all day.",
    "Turn left at the next corner and walk straight ahead.",
)


@dataclass(frozen=True, slots=True)
class Sound:
    """A sound, in both forms."""

    path: Path
    """A WAV file: 16 kHz, one channel, 16 bits."""
    samples: bytes
    """The same, as 32-bit floats from -1 to 1."""

    @property
    def seconds(self) -> float:
        """How long it is."""
        return len(self.samples) / 4 / SAMPLE_RATE


def repeated(path: Path, seconds: float, directory: Path) -> Sound:
    """Say a recording over and over until time is up.

    Raises:
        ValueError: it is in another format.
    """
    values, rate = read_wave(path.read_bytes())
    if rate != SAMPLE_RATE:
        raise ValueError(f"{path.name} has {rate} Hz, expected {SAMPLE_RATE}")
    n_samples = round(seconds * SAMPLE_RATE)
    return written(np.resize(values, n_samples), directory / f"{seconds:g}s.wav")


def spoken(sentences: Sequence[str], directory: Path) -> list[Sound]:
    """Have sentences spoken.

    Raises:
        SystemExit: there is nobody to speak.
    """
    return [
        written(spoken_values(sentence), directory / f"sentence-{number}.wav")
        for number, sentence in enumerate(sentences)
    ]


def spoken_values(sentence: str) -> npt.NDArray[np.int16]:
    """Have one sentence spoken; give it in the rate of speech models."""
    try:
        result = subprocess.run(
            [SPEAKER, *VOICE, "--stdout", sentence], capture_output=True, check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"{SPEAKER} does not speak: {error}")
    return resampled(*read_wave(result.stdout))


def read_wave(data: bytes) -> tuple[npt.NDArray[np.int16], int]:
    """Read a WAV file of one channel and 16 bits; give values and rate.

    One that was written into a pipe does not know how long it is: all is read.

    Raises:
        ValueError: it is in another format.
    """
    with wave.open(BytesIO(data)) as file:
        if (file.getnchannels(), file.getsampwidth()) != (1, 2):
            raise ValueError("expected one channel of 16 bits")
        frames = file.readframes(min(file.getnframes(), len(data)))
        return np.frombuffer(frames, "<i2"), file.getframerate()


def resampled(values: npt.NDArray[np.int16], rate: int) -> npt.NDArray[np.int16]:
    """Bring a sound to the rate of speech models: its spectrum, cut or filled up."""
    n_samples = len(values) * SAMPLE_RATE // rate
    spectrum = np.fft.rfft(values)
    scaled = np.fft.irfft(spectrum[: n_samples // 2 + 1], n_samples)
    exact = scaled * n_samples / len(values)
    return np.clip(np.round(exact), -FULL_SCALE, FULL_SCALE - 1).astype(np.int16)


def written(values: npt.NDArray[np.int16], path: Path) -> Sound:
    """Write a sound into a file; give both forms."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SAMPLE_RATE)
        file.writeframes(values.astype("<i2").tobytes())
    return Sound(path, (values / np.float32(FULL_SCALE)).astype("<f4").tobytes())
