"""Media in sealed memfds, whose descriptors are passed to the daemon.

This copies them once, and needs no base64 in JSON; the seals guarantee the daemon that the
content does not change after it was checked.
"""

import fcntl
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from typing import Final

from inferd.client.closing import ClosedOnLeaving

SEALS: Final = (
    fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
)
READ_BYTES: Final = 64 * 1024
"""Bytes of one block that is read back; for audio the size of ``sound.BLOCK_BYTES``."""


class Memfd(ClosedOnLeaving):
    """A memfd that is filled, sealed, and passed to the daemon.

    Attributes:
        fd: its descriptor, valid until ``close``.
        n_bytes: bytes written so far.

    Ownership: ``close`` it, or use it in a ``with`` block; the daemon has a descriptor of
    its own once the answer has begun.
    """

    def __init__(self) -> None:
        self.fd = os.memfd_create("inferd-media", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        self.n_bytes = 0

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self.fd)

    def write(self, block: bytes) -> None:
        """Append a block.

        Raises:
            OSError: memory is exhausted, or the memfd is sealed.
        """
        view = memoryview(block)
        while view:
            n_written = os.write(self.fd, view)
            self.n_bytes += n_written
            view = view[n_written:]

    def seal(self) -> None:
        """Make the content immutable."""
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, SEALS)

    def blocks(self) -> Iterator[bytes]:
        """Read the content from the beginning, block by block."""
        for offset in range(0, self.n_bytes, READ_BYTES):
            yield os.pread(self.fd, READ_BYTES, offset)


def scm_rights(descriptors: Sequence[int]) -> list[tuple[int, int, bytes]]:
    """Build the ancillary data that passes descriptors with ``sendmsg``; empty for none."""
    if not descriptors:
        return []
    return [
        (
            socket.SOL_SOCKET,
            socket.SCM_RIGHTS,
            struct.pack(f"{len(descriptors)}i", *descriptors),
        )
    ]
