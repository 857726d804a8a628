"""The input of ``inferd transcribe``: audio files, and raw samples from stdin."""

import os
import select
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from types import FrameType
from typing import BinaryIO, Final

from inferd.cli.console import CommandError, stdin
from inferd.client.media.sound import (
    BLOCK_BYTES,
    BYTES_PER_S,
    SoundError,
    convert,
    decode,
    decode_stream,
)

STDIN: Final = "-"
RAW_DEFAULT: Final = "f32le"
"""Format of raw samples, unless the caller says otherwise."""
_MAGIC: Final = (b"RIFF", b"fLaC", b"OggS", b"ID3", b"FORM", b"caff", b"\x1aE\xdf\xa3")
"""Beginnings of WAV, FLAC, Ogg, MP3 with tags, AIFF, CAF and Matroska."""
_MP4: Final = b"ftyp"
"""In MP4, after four bytes of length."""
_MAGIC_BYTES: Final = 8
POLL_MS: Final = 50
"""Milliseconds of one wait for more samples, and so the longest delay before a frame that
the daemon sent meanwhile is read."""


class Recording:
    """The samples of one file or of stdin; iterable once.

    Attributes:
        name: from the command line.
        error: why the audio ended early, if it did; the samples before were yielded.
    """

    def __init__(self, name: str, blocks: Iterable[bytes]) -> None:
        self.name = name
        self.error: SoundError | None = None
        self._blocks = blocks
        self._n_bytes = 0

    @property
    def decoded_ms(self) -> int:
        """Milliseconds of audio yielded so far."""
        return self._n_bytes * 1000 // BYTES_PER_S

    def __iter__(self) -> Iterator[bytes]:
        """Yield blocks of samples, in the format of ``sound.decode``.

        Raises:
            SoundError: there is no audio at all.
        """
        try:
            for block in self._blocks:
                self._n_bytes += len(block)
                yield block
        except SoundError as error:
            if not self._n_bytes:
                raise
            self.error = error


def open_recording(name: str, sample_format: str | None, rate_hz: int) -> Recording:
    """Open a file, or stdin: a file of a known format, or raw samples.

    Args:
        name: of a file, or ``STDIN``.
        sample_format: of raw samples of stdin; ``None`` to look what it is.
        rate_hz: samples per second of raw samples.

    Raises:
        CommandError: stdin is closed, or a terminal.
        MissingExtraError: a package is needed that is not installed.
    """
    if name == STDIN:
        file = _binary_stdin()
        if sample_format is None and is_media_file(_beginning_of(file)):
            return Recording(name, decode_stream(file))
        raw = iter(lambda: file.read(BLOCK_BYTES), b"")
        return Recording(
            name, _not_empty(convert(raw, sample_format or RAW_DEFAULT, rate_hz))
        )
    return Recording(name, decode(Path(name)))


def open_live(sample_format: str | None, rate_hz: int) -> Recording:
    """Open stdin as raw samples that are yielded as soon as they can be read.

    Raises:
        CommandError: stdin is closed, or a terminal.
        MissingExtraError: a package is needed that is not installed.
    """
    raw = read_available(_binary_stdin())
    return Recording(STDIN, convert(raw, sample_format or RAW_DEFAULT, rate_hz))


def is_media_file(beginning: bytes) -> bool:
    """Tell whether bytes begin a file of a common format.

    No raw samples do: as floats these bytes would be far over 1, or no numbers.
    """
    return beginning.startswith(_MAGIC) or beginning[4:8] == _MP4


def _beginning_of(file: BinaryIO) -> bytes:
    """Return the first bytes, which are still read afterwards."""
    return file.peek(_MAGIC_BYTES) if isinstance(file, BufferedReader) else b""


def read_available(file: BinaryIO) -> Iterator[bytes]:
    """Yield what can be read, and an empty block after ``POLL_MS`` without data.

    The first SIGINT ends the recording, so that its last samples are still transcribed.
    """
    poll = select.poll()
    poll.register(file, select.POLLIN)
    with _first_interrupt() as signals:
        while not signals:
            if not poll.poll(POLL_MS):
                yield b""
            elif data := os.read(file.fileno(), BLOCK_BYTES):
                yield data
            else:
                return


def _binary_stdin() -> BinaryIO:
    if stdin().isatty():
        raise CommandError("stdin is a terminal; pipe raw samples into it")
    return stdin().buffer


def _not_empty(blocks: Iterable[bytes]) -> Iterator[bytes]:
    is_empty = True
    for block in blocks:
        is_empty = is_empty and not block
        yield block
    if is_empty:
        raise SoundError("no audio in it")


@contextmanager
def _first_interrupt() -> Iterator[list[int]]:
    """Yield a list that gets the signal number once SIGINT has come.

    If SIGINT is ignored, as in the background of a shell script, it stays ignored.
    """
    signals: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        yield signals
        return

    def on_signal(number: int, _frame: FrameType | None) -> None:
        signals.append(number)
        signal.signal(signal.SIGINT, before)  # the next one ends the command

    signal.signal(signal.SIGINT, on_signal)
    try:
        yield signals
    finally:
        signal.signal(signal.SIGINT, before)
