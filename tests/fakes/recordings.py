"""Recordings to decode: tones, in whatever form a file may have."""

import array
import math
import struct
from fractions import Fraction
from pathlib import Path
from typing import Final

import av

LOUDNESS: Final = 0.25
"""Of every tone: its greatest sample."""
TONE_HZ: Final = 440.0

CODERS: Final = {
    "a.wav": ("pcm_s16le", "s16", 44_100),
    "a.flac": ("flac", "s16", 48_000),
    "a.mp3": ("libmp3lame", "s16p", 44_100),
    "a.m4a": ("aac", "fltp", 44_100),
    "a.opus": ("libopus", "s16", 48_000),
    "a.ogg": ("vorbis", "fltp", 44_100),
    "a.webm": ("libopus", "s16", 48_000),
    "a.aiff": ("pcm_s16be", "s16", 22_050),
    "a.mka": ("flac", "s16", 8000),
}
"""Names of files; what writes them, from what kind of samples, at which rate."""


def write_sound(path: Path, seconds: float, layout: str = "stereo") -> Path:
    """Write a tone in the form that the file's name stands for in ``CODERS``."""
    codec, form, rate_hz = CODERS[path.name]
    left = round(seconds * rate_hz)
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=rate_hz, options={"strict": "-2"})
        assert isinstance(stream, av.AudioStream)
        stream.layout = layout
        stream.format = form
        at = 0
        while left:
            n_samples = min(left, stream.codec_context.frame_size or 1024)
            frame = av.AudioFrame(form, layout, n_samples)
            frame.sample_rate = rate_hz
            frame.time_base, frame.pts = Fraction(1, rate_hz), at
            _fill(frame, at)
            container.mux(stream.encode(frame))
            at, left = at + n_samples, left - n_samples
        container.mux(stream.encode(None))
    return path


def transcode(source: Path, path: Path) -> Path:
    """Write what a file holds in the form that another's name stands for."""
    codec, form, rate_hz = CODERS[path.name]
    with av.open(str(source)) as given, av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=rate_hz, options={"strict": "-2"})
        assert isinstance(stream, av.AudioStream)
        stream.layout = "stereo"
        stream.format = form
        for frame in given.decode(given.streams.audio[0]):
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def _fill(frame: av.AudioFrame, at: int) -> None:
    samples = tone(at, frame.samples, frame.sample_rate)
    n_channels = len(frame.layout.channels) // len(frame.planes)
    code, scale = ("f", 1.0) if frame.format.name.startswith("flt") else ("h", 32_767)
    scaled = (sample * scale for sample in samples for _ in range(n_channels))
    data = array.array(code, scaled if code == "f" else map(round, scaled)).tobytes()
    for plane in frame.planes:
        plane.update(data.ljust(plane.buffer_size, b"\0"))


def tone(at: int, n_samples: int, rate_hz: int) -> list[float]:
    """Give samples of the tone from one on."""
    step = 2 * math.pi * TONE_HZ / rate_hz
    return [LOUDNESS * math.sin(step * (at + each)) for each in range(n_samples)]


def wav(
    samples: list[float], rate_hz: int = 16_000, n_bytes: int | None = None
) -> bytes:
    """Make a WAV file of one channel, which says that it has so many bytes."""
    data = struct.pack(f"<{len(samples)}h", *(round(32_767 * each) for each in samples))
    said = len(data) if n_bytes is None else n_bytes
    return b"".join(
        (
            b"RIFF",
            struct.pack("<I", min(said + 36, 2**32 - 1)),
            b"WAVEfmt ",
            struct.pack("<IHHIIHH", 16, 1, 1, rate_hz, 2 * rate_hz, 2, 16),
            b"data",
            struct.pack("<I", said),
            data,
        )
    )


def samples_in(blocks: list[bytes]) -> list[float]:
    """Read what a decoder gives."""
    return list(array.array("f", b"".join(blocks)))
