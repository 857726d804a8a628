"""Audio that grows during its transcription, in bounded memory."""

import ctypes
import fcntl
import os
from collections.abc import Callable
from typing import Final, Self

import trio

from inferd.errors import InvalidRequestError
from inferd.limits.server import MEDIA_SLICE_CHARS
from inferd.server.media.attachments import (
    MEDIA_SLICE_BYTES,
    AttachmentFile,
    attachment_error,
    check_size,
    decode_base64,
    decoded_size,
    new_file,
    sealed_size,
)
from inferd.wire.blocks import AudioAttachment

_KEEP_SIZE: Final = 1
_PUNCH_HOLE: Final = 2
_PAGE_BYTES: Final = os.sysconf("SC_PAGESIZE")

OnGrown = Callable[[], None]
"""Called when the file has grown."""


class GrowingAudioFile(AttachmentFile):
    """Memfd of an open audio attachment: appended at the end, freed from the beginning.

    Args:
        attachment: as the client declared it.
        fd: of an empty memfd.
        most_bytes: most bytes that may be appended in total.
        ahead_bytes: most unread bytes; appending waits while there are more.

    Bounds:
        Memory: ``ahead_bytes``, a slice, and the text appended before anything is read.
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
        """Whether the audio has ended."""

    @classmethod
    def create(
        cls, attachment: AudioAttachment, *, most_bytes: int, ahead_bytes: int
    ) -> Self:
        """Make an empty file.

        Raises:
            BackendUnavailableError: there is no descriptor for it.
        """
        fd = new_file(attachment)
        return cls(attachment, fd, most_bytes=most_bytes, ahead_bytes=ahead_bytes)

    @property
    def unread_bytes(self) -> int:
        """Bytes that were appended and may still be needed."""
        return self.n_bytes - self._read_bytes

    async def append_text(self, text: str, grown: OnGrown | None = None) -> None:
        """Decode base64 and append it, waiting while too much is unread.

        Args:
            text: base64 of whole samples.
            grown: called after each slice; without it nothing reads the file yet, and
                there is no waiting.

        Raises:
            InvalidRequestError: it is not base64, too much, or comes after the end.
            BackendUnavailableError: there is no memory for it.

        Cancellation: slices that were appended remain.
        """
        self._check(decoded_size(text))
        for begin in range(0, len(text), MEDIA_SLICE_CHARS):
            part = text[begin : begin + MEDIA_SLICE_CHARS]
            is_last = begin + MEDIA_SLICE_CHARS >= len(text)
            await self._put(
                decode_base64(self.attachment, part, is_last=is_last), grown
            )

    async def append_file(self, fd: int, grown: OnGrown | None = None) -> None:
        """Append the contents of a sealed memfd, as ``append_text`` does.

        Args:
            fd: its descriptor, open until this returns; the caller closes it.
            grown: as there; without it at most ``ahead_bytes`` are allowed, since a
                sparse file may have any length.

        Raises:
            InvalidRequestError: it is not a sealed memfd, too much, or comes after the
                end.
            BackendUnavailableError: there is no memory for it.
        """
        n_bytes = sealed_size(self.attachment, fd)
        self._check(n_bytes)
        if grown is None and n_bytes > self._ahead_bytes:
            raise self._initial_audio_too_long(n_bytes)
        for begin in range(0, n_bytes, MEDIA_SLICE_BYTES):
            await self._put(os.pread(fd, MEDIA_SLICE_BYTES, begin), grown)

    def end(self) -> None:
        """End the audio, and seal the size of the file."""
        self.is_whole = True
        if not self.is_closed:
            # F_SEAL_WRITE would forbid to punch holes, too.
            seals = fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, seals)

    def discard(self, n_bytes: int) -> None:
        """Free the memory of bytes that are not needed any more.

        Args:
            n_bytes: their number, from the beginning of the file.
        """
        self._read_bytes = min(max(self._read_bytes, n_bytes), self.n_bytes)
        end = self._read_bytes // _PAGE_BYTES * _PAGE_BYTES
        if end > self._punched_bytes and not self.is_closed:
            _punch(self.fd, self._punched_bytes, end)
            self._punched_bytes = end
        self._notify()

    def close(self) -> None:
        """Close the descriptor; tasks that wait to append return."""
        super().close()
        self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    def _check(self, n_bytes: int) -> None:
        if self.is_whole:
            raise attachment_error(self.attachment, "has ended, and more was appended")
        check_size(self.attachment, n_bytes)
        if self.n_bytes + n_bytes > self._most_bytes:
            raise attachment_error(
                self.attachment,
                f"has over {self._most_bytes} bytes, the most that a request may append",
            )

    def _initial_audio_too_long(self, n_bytes: int) -> InvalidRequestError:
        return attachment_error(
            self.attachment,
            f"begins with {n_bytes} bytes, at most {self._ahead_bytes} are allowed",
        )

    async def _put(self, data: bytes, grown: OnGrown | None) -> None:
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
