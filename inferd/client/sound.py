"""Sound as models hear it: samples of one channel, 16,000 a second, block by block."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from inferd.client.media import MediaError, MissingExtraError

SAMPLE_RATE_HZ: Final = 16_000
SAMPLE_BYTES: Final = 4
"""Of a sample: a little-endian 32-bit float, from -1 to 1."""
BYTES_PER_S: Final = SAMPLE_RATE_HZ * SAMPLE_BYTES
BLOCK_BYTES: Final = 64 * 1024
"""Bytes of a block, a second of sound: in a line of JSON it is shorter than what the
daemon reads in turns."""

RAW_BYTES: Final = {"f32le": 4, "s16le": 2}
"""Forms of raw samples, and how many bytes one has."""


class SoundError(MediaError):
    """This is no sound that can be used, or not to its end."""


def decode(path: Path) -> Iterator[bytes]:
    """Give a file's sound.

    Returns:
        Blocks of ``BLOCK_BYTES``, but for the last: little-endian 32-bit floats of one
        channel, ``SAMPLE_RATE_HZ`` a second. Channels are averaged.

    Raises:
        SoundError: it is no file of sound, or breaks off; what came before is given.
        MissingExtraError: PyAV is not installed.

    Bounds:
        Some blocks in memory, however long the file; 10 s an hour of sound on one core.
    """
    try:
        from inferd.client.decoder import samples_of  # noqa: PLC0415  # takes 0.1 s
    except ImportError as error:
        raise MissingExtraError("av") from error
    return blocks_of(samples_of(path))


def convert(raw: Iterable[bytes], form: str, rate_hz: int) -> Iterator[bytes]:
    """Give raw samples of one channel as ``decode`` gives a file's, block for block.

    Args:
        raw: samples, in blocks of any size; an empty block gives an empty one.
        form: what each is, of ``RAW_BYTES``.
        rate_hz: samples a second.

    Raises:
        SoundError: they end within a sample; what came before is given.
        MissingExtraError: PyAV is not installed, which is needed unless they are
            ``f32le``, ``SAMPLE_RATE_HZ`` a second.
    """
    whole = whole_samples(raw, RAW_BYTES[form])
    if (form, rate_hz) == ("f32le", SAMPLE_RATE_HZ):
        return whole
    try:
        from inferd.client.decoder import converted  # noqa: PLC0415  # takes 0.1 s
    except ImportError as error:
        raise MissingExtraError("av") from error
    return converted(whole, form, rate_hz)


def whole_samples(raw: Iterable[bytes], n_bytes: int) -> Iterator[bytes]:
    """Cut blocks where samples of so many bytes end.

    Raises:
        SoundError: the last one is not whole; what came before is given.
    """
    rest = b""
    for block in raw:
        data = rest + block
        n_whole = len(data) - len(data) % n_bytes
        yield data[:n_whole]
        rest = data[n_whole:]
    if rest:
        raise SoundError(f"ends within a sample, which has {n_bytes} bytes")


def blocks_of(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Cut what comes in blocks of one size, but for the last.

    Raises:
        SoundError: they break off; what came before is given.
    """
    held = bytearray()
    broken: SoundError | None = None
    try:
        for piece in pieces:
            held += piece
            while len(held) >= BLOCK_BYTES:
                yield bytes(held[:BLOCK_BYTES])
                del held[:BLOCK_BYTES]
    except SoundError as error:
        broken = error
    if held:
        yield bytes(held)
    if broken:
        raise broken
