"""Attachments as memfds: decoded from base64, or passed by the client and checked.

Workers get attachments only as such files (ADR 0049). A descriptor that a client passed
is not read before it is known to be a sealed memfd of the right size: a pipe would block.
"""

import binascii
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Self, TypeAlias

import trio

from inferd.backend.job import PIXEL_BYTES, SAMPLE_BYTES
from inferd.errors import BackendUnavailableError, InvalidRequestError
from inferd.limits.server import MAX_IMAGE_PIXELS, MEDIA_SLICE_CHARS
from inferd.wire.blocks import AudioAttachment, ImageAttachment

MediaAttachment: TypeAlias = ImageAttachment | AudioAttachment

MEDIA_SLICE_BYTES: Final = MEDIA_SLICE_CHARS // 4 * 3

_SEALS: Final = {
    "F_SEAL_WRITE": fcntl.F_SEAL_WRITE,
    "F_SEAL_SHRINK": fcntl.F_SEAL_SHRINK,
    "F_SEAL_GROW": fcntl.F_SEAL_GROW,
}
"""The seals that a passed file must have. ``F_SEAL_FUTURE_WRITE`` is no substitute for
``F_SEAL_WRITE``: with it, a mapping made before remains writable."""
_ALL_SEALS: Final = sum(_SEALS.values()) | fcntl.F_SEAL_SEAL


class AttachmentFile:
    """Memfd with the bytes of one attachment.

    Ownership: owns its descriptor; ``close`` may be called more than once.
    """

    def __init__(self, attachment: MediaAttachment, fd: int, n_bytes: int = 0) -> None:
        self.attachment = attachment
        self.n_bytes = n_bytes
        """Size of the file."""
        self._fd = fd
        self._is_closed = False

    @classmethod
    async def from_base64(cls, attachment: MediaAttachment) -> Self:
        """Decode the base64 of an attachment into a new file, a slice at a time.

        Raises:
            InvalidRequestError: it is not base64, or not as long as declared.
            BackendUnavailableError: there is no descriptor or no memory for it.
        """
        text = attachment.bytes or ""
        check_size(attachment, decoded_size(text))
        file = cls(attachment, new_file(attachment))
        try:
            for begin in range(0, len(text), MEDIA_SLICE_CHARS):
                await trio.lowlevel.checkpoint()
                part = text[begin : begin + MEDIA_SLICE_CHARS]
                is_last = begin + MEDIA_SLICE_CHARS >= len(text)
                file.write(decode_base64(attachment, part, is_last=is_last))
            fcntl.fcntl(file.fd, fcntl.F_ADD_SEALS, _ALL_SEALS)
        except BaseException:
            file.close()
            raise
        return file

    @classmethod
    def from_fd(cls, attachment: MediaAttachment, fd: int) -> Self:
        """Duplicate the descriptor of a memfd that a client passed.

        Args:
            attachment: as the client declared it.
            fd: the client's descriptor; the caller closes it.

        Raises:
            InvalidRequestError: it is not a sealed memfd, or not as long as declared.
            BackendUnavailableError: there is no descriptor for it.
        """
        n_bytes = sealed_size(attachment, fd)
        check_size(attachment, n_bytes)
        return cls(attachment, duplicate(attachment, fd), n_bytes)

    @property
    def fd(self) -> int:
        """Its descriptor, until it is closed."""
        return self._fd

    @property
    def is_closed(self) -> bool:
        """Whether the file was closed."""
        return self._is_closed

    def close(self) -> None:
        """Close the descriptor."""
        if not self._is_closed:
            self._is_closed = True
            os.close(self._fd)

    def write(self, data: bytes) -> None:
        """Append bytes.

        Raises:
            BackendUnavailableError: there is no memory for them.
        """
        view = memoryview(data)
        while view:
            try:
                n_written = os.pwrite(self._fd, view, self.n_bytes)
            except OSError as error:
                raise _storage_error(self.attachment, error) from error
            self.n_bytes += n_written
            view = view[n_written:]


def new_file(attachment: MediaAttachment) -> int:
    """Make an empty memfd; the caller closes it.

    Raises:
        BackendUnavailableError: there is no descriptor for it.
    """
    try:
        return os.memfd_create("inferd-medium", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError as error:
        raise _storage_error(attachment, error) from error


def duplicate(attachment: MediaAttachment, fd: int) -> int:
    """Duplicate a descriptor; the caller closes the duplicate.

    Raises:
        BackendUnavailableError: there is no descriptor for it.
    """
    try:
        return os.dup(fd)
    except OSError as error:
        raise _storage_error(attachment, error) from error


@contextmanager
def duplicated(attachment: MediaAttachment, fd: int) -> Iterator[int]:
    """Hold a duplicate of the descriptor of a memfd while inside.

    Raises:
        InvalidRequestError: it is not a sealed memfd: to close the duplicate could take
            long.
        BackendUnavailableError: there is no descriptor for it.
    """
    sealed_size(attachment, fd)
    copy = duplicate(attachment, fd)
    try:
        yield copy
    finally:
        os.close(copy)


def decoded_size(text: str) -> int:
    """Compute the decoded size of base64; the text is not checked."""
    tail = text[-2:]  # padding has at most two characters, and copying the text is slow
    return len(text) // 4 * 3 - sum(each in ("=", b"="[0]) for each in tail)


def decode_base64(attachment: MediaAttachment, part: str, *, is_last: bool) -> bytes:
    """Decode standard base64 with its padding, which only the last part may have.

    Raises:
        InvalidRequestError: it is not valid.
    """
    try:
        data = binascii.a2b_base64(part, strict_mode=True)
    except ValueError as error:
        raise _base64_error(attachment) from error
    n_padding = 2 if is_last else 0
    if len(part) % 4 or len(data) < len(part) // 4 * 3 - n_padding:
        raise _base64_error(attachment)
    return data


def check_size(attachment: MediaAttachment, n_bytes: int) -> None:
    """Compare the size of a file with what the attachment declares.

    Raises:
        InvalidRequestError: they differ, or an image has no pixels or too many.
    """
    match attachment:
        case ImageAttachment(width=width, height=height):
            n_pixels = width * height
            if not 0 < n_pixels <= MAX_IMAGE_PIXELS:
                raise attachment_error(
                    attachment,
                    f"has {width} x {height} pixels, 1 to {MAX_IMAGE_PIXELS} are allowed",
                )
            if n_bytes != n_pixels * PIXEL_BYTES:
                raise attachment_error(
                    attachment,
                    f"has {n_bytes} bytes, {width} x {height} pixels have "
                    f"{n_pixels * PIXEL_BYTES}",
                )
        case AudioAttachment():
            if n_bytes % SAMPLE_BYTES:
                raise attachment_error(
                    attachment,
                    f"has {n_bytes} bytes, not a multiple of {SAMPLE_BYTES}",
                )


def sealed_size(attachment: MediaAttachment, fd: int) -> int:
    """Get the size of a memfd that a client passed, without reading from it.

    Raises:
        InvalidRequestError: it is not a memfd, not sealed, or not readable.
    """
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
        mode = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE
        found = os.fstat(fd)
    except OSError as error:
        raise attachment_error(
            attachment, "is not a memfd: its fd has no seals"
        ) from error
    if not stat.S_ISREG(found.st_mode):
        raise attachment_error(
            attachment, "is not a memfd: its fd is not a regular file"
        )
    missing = [name for name, seal in _SEALS.items() if not seals & seal]
    if missing:
        raise attachment_error(
            attachment, f"is not sealed: {', '.join(missing)} missing"
        )
    if mode == os.O_WRONLY:
        raise attachment_error(
            attachment, "cannot be read: its fd is open for writing only"
        )
    return found.st_size


def attachment_error(attachment: MediaAttachment, fault: str) -> InvalidRequestError:
    """Make the error for an invalid attachment."""
    return InvalidRequestError(f'attachment "{attachment.id}" {fault}')


def _base64_error(attachment: MediaAttachment) -> InvalidRequestError:
    return attachment_error(attachment, "is not standard base64 with padding")


def _storage_error(
    attachment: MediaAttachment, error: OSError
) -> BackendUnavailableError:
    return BackendUnavailableError(
        f'attachment "{attachment.id}" cannot be stored: {error.strerror}'
    )
