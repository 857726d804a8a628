"""What ``inferd transcribe`` listens to: files, and samples that are piped in."""

import os
import select
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import BinaryIO, Final

from inferd.cli.console import CommandError, stdin
from inferd.client.sound import (
    BLOCK_BYTES,
    BYTES_PER_S,
    SoundError,
    convert,
    decode,
)

STDIN: Final = "-"
LISTEN_MS: Final = 50
"""Milliseconds that are waited for more sound at once: as long may a text wait that the
daemon has sent meanwhile."""


class Recording:
    """The sound of one file, or what is piped in; read once.

    Attributes:
        name: as it was given.
        broken: why its sound broke off, if it did; what came before is given.
    """

    def __init__(self, name: str, blocks: Iterable[bytes]) -> None:
        self.name = name
        self.broken: SoundError | None = None
        self._blocks = blocks
        self._n_bytes = 0

    @property
    def decoded_ms(self) -> int:
        """How much of it was given."""
        return self._n_bytes * 1000 // BYTES_PER_S

    def __iter__(self) -> Iterator[bytes]:
        """Give its blocks, in the form of ``sound.decode``.

        Raises:
            SoundError: there is no sound at all.
        """
        try:
            for block in self._blocks:
                self._n_bytes += len(block)
                yield block
        except SoundError as error:
            if not self._n_bytes:
                raise
            self.broken = error


def recording_of(name: str, form: str, rate_hz: int) -> Recording:
    """Open a file, or stdin as samples of a form.

    Raises:
        CommandError: stdin is closed, or a terminal.
        MissingExtraError: a package is needed that is not installed.
    """
    if name == STDIN:
        file = _piped()
        raw = iter(lambda: file.read(BLOCK_BYTES), b"")
        return Recording(name, _some(convert(raw, form, rate_hz)))
    return Recording(name, decode(Path(name)))


def live_recording(form: str, rate_hz: int) -> Recording:
    """Open stdin as samples that are used as they come.

    Raises:
        CommandError: stdin is closed, or a terminal.
        MissingExtraError: a package is needed that is not installed.
    """
    raw = as_it_comes(_piped())
    return Recording(STDIN, convert(raw, form, rate_hz))


def as_it_comes(file: BinaryIO) -> Iterator[bytes]:
    """Give what can be read, and an empty block where nothing comes for a moment.

    The first interrupt is taken for the end, so that what was said is still heard.
    """
    poll = select.poll()
    poll.register(file, select.POLLIN)
    with _told_to_end() as told:
        while not told:
            if not poll.poll(LISTEN_MS):
                yield b""
            elif data := os.read(file.fileno(), BLOCK_BYTES):
                yield data
            else:
                return


def _piped() -> BinaryIO:
    if stdin().isatty():
        raise CommandError("stdin is a terminal; samples have to be piped in")
    return stdin().buffer


def _some(blocks: Iterable[bytes]) -> Iterator[bytes]:
    is_empty = True
    for block in blocks:
        is_empty = is_empty and not block
        yield block
    if is_empty:
        raise SoundError("no sound in it")


@contextmanager
def _told_to_end() -> Iterator[list[int]]:
    """Give a list in which an interrupt stands once there was one."""
    told: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        told.append(number)
        signal.signal(signal.SIGINT, before)  # the next one ends the command

    before = signal.signal(signal.SIGINT, note)
    try:
        yield told
    finally:
        signal.signal(signal.SIGINT, before)
