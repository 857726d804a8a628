"""Files of ``/proc``, kept open: a serving worker cannot open any."""

import os
from pathlib import Path
from typing import Final
from weakref import finalize

_READ_BYTES: Final = 64 * 1024


class ProcFile:
    """A file whose content the kernel generates at each read.

    Args:
        path: of the file; its content may depend on the process that opened it.

    Ownership:
        Owns a descriptor from the first read, or from ``open``, until it is collected. A fork
        opens the file anew.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1
        self._process = 0

    def open(self) -> None:
        """Open the file, unless this process has it open.

        Raises:
            OSError: it does not exist, or must not be opened.
        """
        if self._process != os.getpid():
            self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            self._process = os.getpid()
            finalize(self, os.close, self._fd).atexit = False

    def read(self) -> str:
        """Read the whole file.

        Raises:
            OSError: it cannot be read.
        """
        self.open()
        parts: list[bytes] = []
        n_read = 0
        while part := os.pread(self._fd, _READ_BYTES, n_read):
            parts.append(part)
            n_read += len(part)
        return b"".join(parts).decode()
