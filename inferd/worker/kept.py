"""Files in which the kernel tells something, held open: while serving none can be opened."""

import os
from pathlib import Path
from typing import Final

_READ_BYTES: Final = 64 * 1024


class KeptFile:
    """A file whose text is another each time it is read.

    Args:
        path: of the file; what it tells may be of the process that opened it.

    Ownership:
        Holds a descriptor from the first reading on, or from ``open`` on. A fork opens it
        anew.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1
        self._process = 0

    def open(self) -> None:
        """Open it.

        Raises:
            OSError: it is not there, or may not be opened.
        """
        if self._process != os.getpid():
            self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            self._process = os.getpid()

    def read(self) -> str:
        """Read it from the beginning to its end.

        Raises:
            OSError: it cannot be.
        """
        self.open()
        parts: list[bytes] = []
        n_read = 0
        while part := os.pread(self._fd, _READ_BYTES, n_read):
            parts.append(part)
            n_read += len(part)
        return b"".join(parts).decode()
