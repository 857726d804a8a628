"""Decode audio files into samples with PyAV; imported only to decode one."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

import av
from av import AudioFrame, AudioResampler, AudioStream, Packet
from av.container import InputContainer
from av.error import FFmpegError

from inferd.client.media.sound import (
    RAW_BYTES,
    SAMPLE_BYTES,
    SAMPLE_RATE_HZ,
    SoundError,
)

SHORTFALL_S: Final = 0.5
"""Seconds by which audio may be shorter than its header says, because encoders pad."""
SHORTFALL_SHARE: Final = 0.02
"""The same, as a share of the length, which in some files is an estimate."""

_FORMATS: Final = {"f32le": "flt", "s16le": "s16"}
_WAV_BYTES: Final = range(37, 0x7FFF_0000)
"""Valid sizes in a RIFF header; programs that stream a WAV file write others."""
_OPTIONS: Final = {"protocol_whitelist": "none"}
"""Protocols that playlists may use: none, or they could make this read files and hosts."""


def decode_file(path: Path) -> Iterator[bytes]:
    """Yield a file's samples in the format of ``sound.decode``, in blocks of any size.

    Raises:
        SoundError: it is not an audio file, or is truncated; the samples before were
            yielded.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise SoundError(_message(error)) from error
    with file:
        yield from decode_open(file)


def decode_open(file: BinaryIO) -> Iterator[bytes]:
    """Yield the samples of an open file, as ``decode_file`` does.

    Raises:
        SoundError: as there.
    """
    is_streamed = _is_streamed(file)
    truncation_check = TruncationCheck(None)
    try:
        with av.open(
            file, "r", options=_OPTIONS, metadata_errors="replace"
        ) as container:
            stream = container.streams.best("audio")
            if isinstance(stream, AudioStream):
                if not is_streamed:
                    truncation_check = TruncationCheck(_expected_s(container, stream))
                packets = container.demux(stream)
                frames = _frames(packets, truncation_check, is_streamed=is_streamed)
                yield from _resampled(frames)
    except (FFmpegError, OSError) as error:
        truncation_check.note_fault(_message(error))
    truncation_check.check()


def convert_raw(
    raw: Iterable[bytes], sample_format: str, rate_hz: int
) -> Iterator[bytes]:
    """Convert blocks of whole samples from another format or rate, block for block.

    Raises:
        SoundError: ``raw`` raised it; the samples before were yielded.
    """
    resampler = _resampler()
    failure: SoundError | None = None
    try:
        for block in raw:
            frames = (
                resampler.resample(_frame(block, sample_format, rate_hz))
                if block
                else []
            )
            yield b"".join(map(_bytes, frames))
    except SoundError as error:
        failure = error
    yield from map(_bytes, resampler.resample(None))
    if failure:
        raise failure


class TruncationCheck:
    """Detects truncated audio: compares the decoded length with the header's.

    Args:
        expected_s: length according to the file's header, if it has one.
    """

    def __init__(self, expected_s: float | None) -> None:
        self._expected_s = expected_s
        self._decoded_s = 0.0
        self._fault = ""
        """The error of the last packet; a broken packet before it is skipped."""

    def note_fault(self, fault: str) -> None:
        """Record the error of a packet, or an empty string."""
        self._fault = fault

    def add_decoded(self, seconds: float) -> None:
        """Add to the decoded length."""
        self._decoded_s += seconds

    def check(self) -> None:
        """Check that there was audio, and that it is complete.

        Raises:
            SoundError: there was none, or it is truncated.
        """
        why = self._fault and f": {self._fault}"
        if not self._decoded_s:
            raise SoundError(f"no audio in it{why}")
        expected_s = self._expected_s or 0.0
        tolerance_s = max(SHORTFALL_S, SHORTFALL_SHARE * expected_s)
        is_short = expected_s - self._decoded_s > tolerance_s
        if self._fault or is_short:
            of = f" of {expected_s:.1f} s" if is_short else ""
            raise SoundError(f"breaks off after {self._decoded_s:.1f} s{of}{why}")


def _is_streamed(file: BinaryIO) -> bool:
    """Tell whether the header was written before the length was known: a pipe, some WAV."""
    if not file.seekable():
        return True
    head = file.read(8)
    file.seek(0)
    size = int.from_bytes(head[4:], "little")
    return head.startswith(b"RIFF") and size not in _WAV_BYTES


def _expected_s(container: InputContainer, stream: AudioStream) -> float | None:
    if stream.duration is not None and stream.time_base is not None:
        return float(stream.duration * stream.time_base)
    if container.duration is not None and len(container.streams) == 1:
        return container.duration / 1e6  # with more streams it may be the video's
    return None


def _frames(
    packets: "Iterable[Packet[AudioStream]]",
    truncation_check: TruncationCheck,
    *,
    is_streamed: bool,
) -> Iterator[AudioFrame]:
    for packet in packets:
        fault = ""
        frames: list[AudioFrame] = []
        try:
            frames = packet.decode()
        except FFmpegError as error:
            fault = _message(error)
        if packet.is_corrupt and not is_streamed:
            fault = "its last packet is incomplete"
        if packet.size:  # the empty packet at the end flushes the decoder
            truncation_check.note_fault(fault)
        for frame in frames:
            truncation_check.add_decoded(frame.samples / frame.sample_rate)
            yield frame


def _resampled(frames: Iterable[AudioFrame]) -> Iterator[bytes]:
    resampler = _resampler()
    current: object = None
    for frame in frames:
        parameters = (frame.format.name, frame.layout.name, frame.sample_rate)
        if current not in (None, parameters):  # they may change within a file
            yield from map(_bytes, resampler.resample(None))
            resampler = _resampler()
        current = parameters
        yield from map(_bytes, resampler.resample(frame))
    yield from map(_bytes, resampler.resample(None))


def _resampler() -> AudioResampler:
    """Make a resampler to mono that averages; by default stereo gets 1.4 times as loud."""
    return AudioResampler(
        format="flt",
        layout="mono",
        rate=SAMPLE_RATE_HZ,
        options={"rematrix_maxval": "1.0"},
    )


def _frame(block: bytes, sample_format: str, rate_hz: int) -> AudioFrame:
    n_samples = len(block) // RAW_BYTES[sample_format]
    frame = AudioFrame(format=_FORMATS[sample_format], layout="mono", samples=n_samples)
    frame.sample_rate = rate_hz
    frame.planes[0].update(block.ljust(frame.planes[0].buffer_size, b"\0"))
    return frame


def _bytes(frame: AudioFrame) -> bytes:
    return bytes(memoryview(frame.planes[0])[: frame.samples * SAMPLE_BYTES])


def _message(error: FFmpegError | OSError) -> str:
    return error.strerror or str(error)
