"""Sound that comes while it is listened to, in memory that does not grow with it."""

import ctypes
import fcntl
import os
from collections.abc import Callable
from typing import Final, Self

import trio

from inferd.errors import InvalidRequestError
from inferd.server.limits import MEDIA_SLICE_CHARS
from inferd.server.media import (
    MEDIA_SLICE_BYTES,
    Medium,
    check_size,
    decode,
    decoded_bytes,
    new_file,
    refusal,
    sealed_bytes,
)
from inferd.wire.blocks import AudioAttachment

_KEEP_SIZE: Final = 1
_PUNCH_HOLE: Final = 2
_PAGE_BYTES: Final = os.sysconf("SC_PAGESIZE")

Grown = Callable[[], None]
"""Told that there is more in the file."""


class Sound(Medium):
    """An open medium: it grows at its end and is forgotten from its beginning.

    Args:
        attachment: what the client calls it.
        fd: of an empty file.
        most_bytes: in all.
        ahead_bytes: that nobody needs to have read before more is taken.

    Bounds:
        Memory: ``ahead_bytes``, a slice, and the text that came before anybody read.
    """

    def __init__(
        self, attachment: AudioAttachment, fd: int, *, most_bytes: int, ahead_bytes: int
    ) -> None:
        super().__init__(attachment, fd)
        self._most_bytes = most_bytes
        self._ahead_bytes = ahead_bytes
        self._read_bytes = 0
        self._punched_bytes = 0
        self._changed = trio.Event()
        self.is_whole = False
        """Whether nothing more comes."""

    @classmethod
    def growing(
        cls, attachment: AudioAttachment, *, most_bytes: int, ahead_bytes: int
    ) -> Self:
        """Begin with nothing.

        Raises:
            BackendUnavailableError: there is no descriptor for it.
        """
        fd = new_file(attachment)
        return cls(attachment, fd, most_bytes=most_bytes, ahead_bytes=ahead_bytes)

    @property
    def unread_bytes(self) -> int:
        """How much has come that somebody may still need."""
        return self.n_bytes - self._read_bytes

    async def append_text(self, text: str, grown: Grown | None = None) -> None:
        """Add what base64 stands for, as far as there is room; wait for more room.

        Args:
            text: of whole samples.
            grown: told after each slice; without it nobody reads yet, and nothing is
                waited for.

        Raises:
            InvalidRequestError: it is none, or too much, or comes after the end.
            BackendUnavailableError: there is no memory for it.

        Cancellation: what is there by then stays.
        """
        self._check(decoded_bytes(text))
        for begin in range(0, len(text), MEDIA_SLICE_CHARS):
            part = text[begin : begin + MEDIA_SLICE_CHARS]
            is_last = begin + MEDIA_SLICE_CHARS >= len(text)
            await self._put(decode(self.attachment, part, is_last=is_last), grown)

    async def append_file(self, fd: int, grown: Grown | None = None) -> None:
        """Add what is in a sealed memfd, as ``append_text`` does.

        Args:
            fd: that of the file, open until this returns; the caller's to close.
            grown: as there; without it there may be no more than may lie unread, since
                a file of holes is as long as its client likes.

        Raises:
            InvalidRequestError: it is none, or too much, or comes after the end.
            BackendUnavailableError: there is no memory for it.
        """
        n_bytes = sealed_bytes(self.attachment, fd)
        self._check(n_bytes)
        if grown is None and n_bytes > self._ahead_bytes:
            raise self._too_long_ahead(n_bytes)
        for begin in range(0, n_bytes, MEDIA_SLICE_BYTES):
            await self._put(os.pread(fd, MEDIA_SLICE_BYTES, begin), grown)

    def end(self) -> None:
        """Take nothing more."""
        self.is_whole = True
        if not self.is_closed:
            seals = fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK  # holes are writes
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, seals)

    def forget(self, n_bytes: int) -> None:
        """Give back the memory of what nobody needs any more.

        Args:
            n_bytes: from the beginning.
        """
        self._read_bytes = min(max(self._read_bytes, n_bytes), self.n_bytes)
        end = self._read_bytes // _PAGE_BYTES * _PAGE_BYTES
        if end > self._punched_bytes and not self.is_closed:
            _punch(self.fd, self._punched_bytes, end)
            self._punched_bytes = end
        self._tell()

    def close(self) -> None:
        """Let go of it; who waits to append has nothing more to do."""
        super().close()
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    def _check(self, n_bytes: int) -> None:
        if self.is_whole:
            raise refusal(self.attachment, "has ended, and more of it came")
        check_size(self.attachment, n_bytes)
        if self.n_bytes + n_bytes > self._most_bytes:
            raise refusal(
                self.attachment,
                f"has over {self._most_bytes} bytes, which one request may append",
            )

    def _too_long_ahead(self, n_bytes: int) -> InvalidRequestError:
        return refusal(
            self.attachment,
            f"begins with {n_bytes} bytes, at most {self._ahead_bytes} are allowed",
        )

    async def _put(self, data: bytes, grown: Grown | None) -> None:
        await trio.lowlevel.checkpoint()
        while grown and not self._has_room(len(data)) and not self.is_closed:
            await self._changed.wait()
        if self.is_closed:
            return
        self.write(data)
        if grown:
            grown()

    def _has_room(self, n_bytes: int) -> bool:
        return not self.unread_bytes or (
            self.unread_bytes + n_bytes <= self._ahead_bytes
        )


def _punch(fd: int, begin: int, end: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, *[ctypes.c_int64] * 2]
    if libc.fallocate(fd, _KEEP_SIZE | _PUNCH_HOLE, begin, end - begin) < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
