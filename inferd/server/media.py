"""Attachments as files in memory: decoded here, or passed by a client and only looked at.

What a worker is given is always such a file (ADR 0049). Nothing here reads what a client
passed before it is known to be one, sealed and of the right size: a pipe would block.
"""

import binascii
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Self, TypeAlias

import trio

from inferd.errors import BackendUnavailableError, InvalidRequestError
from inferd.job import PIXEL_BYTES, SAMPLE_BYTES
from inferd.server.limits import MAX_IMAGE_PIXELS, MEDIA_SLICE_CHARS
from inferd.wire.blocks import AudioAttachment, ImageAttachment

Attached: TypeAlias = ImageAttachment | AudioAttachment

MEDIA_SLICE_BYTES: Final = MEDIA_SLICE_CHARS // 4 * 3

_SEALS: Final = {
    "F_SEAL_WRITE": fcntl.F_SEAL_WRITE,
    "F_SEAL_SHRINK": fcntl.F_SEAL_SHRINK,
    "F_SEAL_GROW": fcntl.F_SEAL_GROW,
}
"""What nobody can do to a file any more. ``F_SEAL_FUTURE_WRITE`` is no substitute: with
it, whoever had mapped the file before goes on writing."""
_ALL_SEALS: Final = sum(_SEALS.values()) | fcntl.F_SEAL_SEAL


class Medium:
    """The bytes of one attachment.

    Ownership: has its descriptor to itself; ``close`` it, once or more often.
    """

    def __init__(self, attachment: Attached, fd: int, n_bytes: int = 0) -> None:
        self.attachment = attachment
        self.n_bytes = n_bytes
        """That are in the file, from its beginning."""
        self._fd = fd
        self._is_closed = False

    @classmethod
    async def decoded(cls, attachment: Attached) -> Self:
        """Decode what came in the line, a slice at a time.

        Raises:
            InvalidRequestError: it is no base64, or not as long as it should be.
            BackendUnavailableError: there is no descriptor or no memory for it.
        """
        text = attachment.bytes or ""
        check_size(attachment, decoded_bytes(text))
        medium = cls(attachment, new_file(attachment))
        try:
            for begin in range(0, len(text), MEDIA_SLICE_CHARS):
                await trio.lowlevel.checkpoint()
                part = text[begin : begin + MEDIA_SLICE_CHARS]
                is_last = begin + MEDIA_SLICE_CHARS >= len(text)
                medium.write(decode(attachment, part, is_last=is_last))
            fcntl.fcntl(medium.fd, fcntl.F_ADD_SEALS, _ALL_SEALS)
        except BaseException:
            medium.close()
            raise
        return medium

    @classmethod
    def adopted(cls, attachment: Attached, fd: int) -> Self:
        """Take what a client passed, with a descriptor of our own.

        Args:
            attachment: what it is said to be.
            fd: the client's; the caller's to close.

        Raises:
            InvalidRequestError: it is no sealed memfd, or not as long as it should be.
            BackendUnavailableError: there is no descriptor for it.
        """
        n_bytes = sealed_bytes(attachment, fd)
        check_size(attachment, n_bytes)
        return cls(attachment, duplicate(attachment, fd), n_bytes)

    @property
    def fd(self) -> int:
        """Its descriptor, as long as it is not closed."""
        return self._fd

    @property
    def is_closed(self) -> bool:
        """Whether nobody wants it any more."""
        return self._is_closed

    def close(self) -> None:
        """Let go of it."""
        if not self._is_closed:
            self._is_closed = True
            os.close(self._fd)

    def write(self, data: bytes) -> None:
        """Put bytes behind those that are there.

        Raises:
            BackendUnavailableError: there is no memory for them.
        """
        view = memoryview(data)
        while view:
            try:
                n_written = os.pwrite(self._fd, view, self.n_bytes)
            except OSError as error:
                raise _unholdable(self.attachment, error) from error
            self.n_bytes += n_written
            view = view[n_written:]


def new_file(attachment: Attached) -> int:
    """Make an empty file in memory; the caller closes it.

    Raises:
        BackendUnavailableError: there is no descriptor for it.
    """
    try:
        return os.memfd_create("inferd-medium", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError as error:
        raise _unholdable(attachment, error) from error


def duplicate(attachment: Attached, fd: int) -> int:
    """Make another descriptor of a file; the caller closes it.

    Raises:
        BackendUnavailableError: there is none to be had.
    """
    try:
        return os.dup(fd)
    except OSError as error:
        raise _unholdable(attachment, error) from error


@contextmanager
def duplicated(attachment: Attached, fd: int) -> Iterator[int]:
    """Have another descriptor of a file in memory while inside.

    Raises:
        InvalidRequestError: it is no sealed memfd: closing the copy could take long.
        BackendUnavailableError: there is none to be had.
    """
    sealed_bytes(attachment, fd)
    copy = duplicate(attachment, fd)
    try:
        yield copy
    finally:
        os.close(copy)


def decoded_bytes(text: str) -> int:
    """Tell how many bytes base64 stands for, if it is any."""
    tail = text[-2:]  # padding is no longer, and a copy of the whole takes long
    return len(text) // 4 * 3 - sum(each in ("=", b"="[0]) for each in tail)


def decode(attachment: Attached, part: str, *, is_last: bool) -> bytes:
    """Decode standard base64 with its padding, which only the last part may have.

    Raises:
        InvalidRequestError: it is none.
    """
    try:
        data = binascii.a2b_base64(part, strict_mode=True)
    except ValueError as error:
        raise _no_base64(attachment) from error
    n_padding = 2 if is_last else 0
    if len(part) % 4 or len(data) < len(part) // 4 * 3 - n_padding:
        raise _no_base64(attachment)
    return data


def check_size(attachment: Attached, n_bytes: int) -> None:
    """Compare what there is with what the attachment says.

    Raises:
        InvalidRequestError: they differ, or it is a picture that nobody can look at.
    """
    match attachment:
        case ImageAttachment(width=width, height=height):
            n_pixels = width * height
            if not 0 < n_pixels <= MAX_IMAGE_PIXELS:
                raise refusal(
                    attachment,
                    f"has {width} x {height} pixels, 1 to {MAX_IMAGE_PIXELS} are allowed",
                )
            if n_bytes != n_pixels * PIXEL_BYTES:
                raise refusal(
                    attachment,
                    f"has {n_bytes} bytes, {width} x {height} pixels have "
                    f"{n_pixels * PIXEL_BYTES}",
                )
        case AudioAttachment():
            if n_bytes % SAMPLE_BYTES:
                raise refusal(
                    attachment,
                    f"has {n_bytes} bytes, which are no whole samples of {SAMPLE_BYTES}",
                )


def sealed_bytes(attachment: Attached, fd: int) -> int:
    """Tell how long a memfd is that a client passed, without reading from it.

    Raises:
        InvalidRequestError: it is something else, or not sealed, or cannot be read.
    """
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
        mode = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE
        found = os.fstat(fd)
    except OSError as error:
        raise refusal(attachment, "is no memfd: its fd has no seals") from error
    if not stat.S_ISREG(found.st_mode):
        raise refusal(attachment, "is no memfd: its fd is no file")
    missing = [name for name, seal in _SEALS.items() if not seals & seal]
    if missing:
        raise refusal(attachment, f"is not sealed: {', '.join(missing)} missing")
    if mode == os.O_WRONLY:
        raise refusal(attachment, "cannot be read: its fd is open for writing alone")
    return found.st_size


def refusal(attachment: Attached, fault: str) -> InvalidRequestError:
    """Say what is wrong with an attachment."""
    return InvalidRequestError(f'attachment "{attachment.id}" {fault}')


def _no_base64(attachment: Attached) -> InvalidRequestError:
    return refusal(attachment, "is not standard base64 with padding")


def _unholdable(attachment: Attached, error: OSError) -> BackendUnavailableError:
    return BackendUnavailableError(
        f'attachment "{attachment.id}" cannot be held: {error.strerror}'
    )
