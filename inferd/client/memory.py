"""Media in sealed memory, of which the daemon is given a descriptor.

So they are copied once, and in no line of JSON; the seals keep what was checked as it is.
"""

import fcntl
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Final, Self

SEALS: Final = (
    fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
)
READ_BYTES: Final = 64 * 1024
"""Bytes of a block that is read back; of sound, as many as it came in."""


class Memory:
    """A memfd that is filled, sealed, and given to the daemon.

    Attributes:
        fd: its descriptor, valid until it is closed.
        n_bytes: what was written so far.

    Ownership: ``close`` it, or use it in a ``with`` block; the daemon has its own
    descriptor once its answer began.
    """

    def __init__(self) -> None:
        self.fd = os.memfd_create("inferd-media", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        self.n_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self.fd)

    def write(self, block: bytes) -> None:
        """Add to it.

        Raises:
            OSError: there is no room for it, or it is sealed.
        """
        view = memoryview(block)
        while view:
            n_written = os.write(self.fd, view)
            self.n_bytes += n_written
            view = view[n_written:]

    def seal(self) -> None:
        """Have nobody change it any more."""
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, SEALS)

    def blocks(self) -> Iterator[bytes]:
        """Read it back from its beginning, block by block."""
        for at in range(0, self.n_bytes, READ_BYTES):
            yield os.pread(self.fd, READ_BYTES, at)


def rights(descriptors: Sequence[int]) -> list[tuple[int, int, bytes]]:
    """Give what ``sendmsg`` passes descriptors with, if there are any."""
    if not descriptors:
        return []
    return [
        (
            socket.SOL_SOCKET,
            socket.SCM_RIGHTS,
            struct.pack(f"{len(descriptors)}i", *descriptors),
        )
    ]
