"""Audio as models expect it: mono samples at 16 kHz, in blocks."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from inferd.client.media.errors import MediaError, MissingExtraError

SAMPLE_RATE_HZ: Final = 16_000
SAMPLE_BYTES: Final = 4
"""Size of a sample: a little-endian 32-bit float, from -1 to 1."""
BYTES_PER_S: Final = SAMPLE_RATE_HZ * SAMPLE_BYTES
BLOCK_BYTES: Final = 64 * 1024
"""Bytes of a block, a second of audio: encoded in JSON, it is below the size at which the
daemon decodes lines in a separate process."""

RAW_BYTES: Final = {"f32le": 4, "s16le": 2}
"""Formats of raw samples, and their bytes per sample."""


class SoundError(MediaError):
    """Audio cannot be decoded, or not to its end."""


def decode(path: Path) -> Iterator[bytes]:
    """Decode the audio of a file.

    Returns:
        Blocks of ``BLOCK_BYTES``, the last one shorter: mono little-endian 32-bit floats,
        ``SAMPLE_RATE_HZ`` per second. Channels are averaged.

    Raises:
        SoundError: it is not an audio file, or is truncated; the samples before were
            yielded.
        MissingExtraError: PyAV is not installed.

    Bounds:
        Memory for a few blocks, whatever the length; 10 s of one core per hour of audio.
    """
    try:
        from inferd.client.media.audio_decoder import decode_file  # noqa: PLC0415  # takes 0.1 s
    except ImportError as error:
        raise MissingExtraError("av") from error
    return split_blocks(decode_file(path))


def decode_stream(file: BinaryIO) -> Iterator[bytes]:
    """Decode the audio of an open file, which need not be seekable, as ``decode`` does.

    Raises:
        SoundError: as there.
        MissingExtraError: PyAV is not installed.
    """
    try:
        from inferd.client.media.audio_decoder import decode_open  # noqa: PLC0415  # takes 0.1 s
    except ImportError as error:
        raise MissingExtraError("av") from error
    return split_blocks(decode_open(file))


def convert(raw: Iterable[bytes], sample_format: str, rate_hz: int) -> Iterator[bytes]:
    """Convert raw mono samples into the format of ``decode``, block for block.

    Args:
        raw: samples, in blocks of any size; an empty block yields an empty one.
        sample_format: a key of ``RAW_BYTES``.
        rate_hz: samples per second.

    Raises:
        SoundError: they end within a sample; the samples before were yielded.
        MissingExtraError: PyAV is not installed, which is needed unless they are
            ``f32le`` at ``SAMPLE_RATE_HZ``.
    """
    aligned = align_samples(raw, RAW_BYTES[sample_format])
    if (sample_format, rate_hz) == ("f32le", SAMPLE_RATE_HZ):
        return aligned
    try:
        from inferd.client.media.audio_decoder import convert_raw  # noqa: PLC0415  # takes 0.1 s
    except ImportError as error:
        raise MissingExtraError("av") from error
    return convert_raw(aligned, sample_format, rate_hz)


def align_samples(raw: Iterable[bytes], n_bytes: int) -> Iterator[bytes]:
    """Re-split blocks so that each holds whole samples of ``n_bytes``.

    Raises:
        SoundError: the last sample is incomplete; the samples before were yielded.
    """
    rest = b""
    for block in raw:
        data = rest + block
        n_whole = len(data) - len(data) % n_bytes
        yield data[:n_whole]
        rest = data[n_whole:]
    if rest:
        raise SoundError(f"ends within a sample, which has {n_bytes} bytes")


def split_blocks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Re-split bytes into blocks of ``BLOCK_BYTES``, the last one shorter.

    Raises:
        SoundError: ``pieces`` raised it; the samples before were yielded.
    """
    buffer = bytearray()
    failure: SoundError | None = None
    try:
        for piece in pieces:
            buffer += piece
            while len(buffer) >= BLOCK_BYTES:
                yield bytes(buffer[:BLOCK_BYTES])
                del buffer[:BLOCK_BYTES]
    except SoundError as error:
        failure = error
    if buffer:
        yield bytes(buffer)
    if failure:
        raise failure
