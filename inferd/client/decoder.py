"""Files of sound to samples, by PyAV: imported by who decodes, and by nobody else."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

import av
from av import AudioFrame, AudioResampler, AudioStream, Packet
from av.container import InputContainer
from av.error import FFmpegError

from inferd.client.sound import RAW_BYTES, SAMPLE_BYTES, SAMPLE_RATE_HZ, SoundError

SHORTFALL_S: Final = 0.5
"""Seconds by which sound may be shorter than its file says, for what coders pad."""
SHORTFALL: Final = 0.02
"""The same, as a share of its length: that of some files is an estimate."""

_FORMATS: Final = {"f32le": "flt", "s16le": "s16"}
_WAV_BYTES: Final = range(37, 0x7FFF_0000)
"""Sizes that a WAV file may have; others are written by who does not know it yet."""
_OPTIONS: Final = {"protocol_whitelist": "none"}
"""A playlist would have other files read, or hosts: none may be."""


def samples_of(path: Path) -> Iterator[bytes]:
    """Give a file's samples as ``sound.decode`` does, in pieces as they are decoded.

    Raises:
        SoundError: it is no file of sound, or breaks off; what came before is given.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise SoundError(_words(error)) from error
    with file:
        yield from _decoded(file)


def converted(raw: Iterable[bytes], form: str, rate_hz: int) -> Iterator[bytes]:
    """Give whole samples of another form or rate, block for block.

    Raises:
        SoundError: they break off; what came before is given.
    """
    resampler = _resampler()
    broken: SoundError | None = None
    try:
        for block in raw:
            frames = resampler.resample(_frame(block, form, rate_hz)) if block else []
            yield b"".join(map(_bytes, frames))
    except SoundError as error:
        broken = error
    yield from map(_bytes, resampler.resample(None))
    if broken:
        raise broken


class Ending:
    """Tells whether a file's sound came to its end."""

    def __init__(self, said_s: float | None) -> None:
        """Take in how long the file says it is, if it does."""
        self._said_s = said_s
        self._heard_s = 0.0
        self._fault = ""
        """What was wrong with the last packet; one that is broken may be passed over."""

    def see(self, fault: str) -> None:
        """Take in what was wrong with a packet, if anything was."""
        self._fault = fault

    def hear(self, seconds: float) -> None:
        """Take in how much was decoded."""
        self._heard_s += seconds

    def check(self) -> None:
        """Refuse what has no sound, or breaks off.

        Raises:
            SoundError: it does.
        """
        why = self._fault and f": {self._fault}"
        if not self._heard_s:
            raise SoundError(f"no sound in it{why}")
        said_s = self._said_s or 0.0
        is_short = said_s - self._heard_s > max(SHORTFALL_S, SHORTFALL * said_s)
        if self._fault or is_short:
            of = f" of {said_s:.1f} s" if is_short else ""
            raise SoundError(f"breaks off after {self._heard_s:.1f} s{of}{why}")


def _decoded(file: BinaryIO) -> Iterator[bytes]:
    is_endless = _is_endless(file)
    ending = Ending(None)
    try:
        with av.open(
            file, "r", options=_OPTIONS, metadata_errors="replace"
        ) as container:
            stream = container.streams.best("audio")
            if isinstance(stream, AudioStream):
                if not is_endless:
                    ending = Ending(_said_s(container, stream))
                packets = container.demux(stream)
                yield from _resampled(_frames(packets, ending, is_endless=is_endless))
    except (FFmpegError, OSError) as error:
        ending.see(_words(error))
    ending.check()


def _is_endless(file: BinaryIO) -> bool:
    """Tell what is written without knowing how long it gets: a pipe, a WAV file from one."""
    if not file.seekable():
        return True
    head = file.read(8)
    file.seek(0)
    size = int.from_bytes(head[4:], "little")
    return head.startswith(b"RIFF") and size not in _WAV_BYTES


def _said_s(container: InputContainer, stream: AudioStream) -> float | None:
    if stream.duration is not None and stream.time_base is not None:
        return float(stream.duration * stream.time_base)
    if container.duration is not None and len(container.streams) == 1:
        return container.duration / 1e6  # else it may be a film's
    return None


def _frames(
    packets: "Iterable[Packet[AudioStream]]", ending: Ending, *, is_endless: bool
) -> Iterator[AudioFrame]:
    for packet in packets:
        fault = ""
        frames: list[AudioFrame] = []
        try:
            frames = packet.decode()
        except FFmpegError as error:
            fault = _words(error)
        if packet.is_corrupt and not is_endless:
            fault = "its last piece is not whole"
        if packet.size:  # unlike the one that says that there are no more
            ending.see(fault)
        for frame in frames:
            ending.hear(frame.samples / frame.sample_rate)
            yield frame


def _resampled(frames: Iterable[AudioFrame]) -> Iterator[bytes]:
    resampler = _resampler()
    form: object = None
    for frame in frames:
        now = (frame.format.name, frame.layout.name, frame.sample_rate)
        if form not in (None, now):  # it may change within a file
            yield from map(_bytes, resampler.resample(None))
            resampler = _resampler()
        form = now
        yield from map(_bytes, resampler.resample(frame))
    yield from map(_bytes, resampler.resample(None))


def _resampler() -> AudioResampler:
    """Make what averages channels; by default two of them come out 1.4 times as loud."""
    return AudioResampler(
        format="flt",
        layout="mono",
        rate=SAMPLE_RATE_HZ,
        options={"rematrix_maxval": "1.0"},
    )


def _frame(block: bytes, form: str, rate_hz: int) -> AudioFrame:
    n_samples = len(block) // RAW_BYTES[form]
    frame = AudioFrame(format=_FORMATS[form], layout="mono", samples=n_samples)
    frame.sample_rate = rate_hz
    frame.planes[0].update(block.ljust(frame.planes[0].buffer_size, b"\0"))
    return frame


def _bytes(frame: AudioFrame) -> bytes:
    return bytes(memoryview(frame.planes[0])[: frame.samples * SAMPLE_BYTES])


def _words(error: FFmpegError | OSError) -> str:
    return error.strerror or str(error)
