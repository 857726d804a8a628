"""Measure and limit the memory of this process."""

import gc
import resource
from pathlib import Path
from types import TracebackType
from typing import Final

from inferd.worker.proc_file import ProcFile

_SIZES: Final = ProcFile(Path("/proc/self/statm"))
_MAPPED: Final = 0
_RESIDENT: Final = 1
_DATA: Final = 5
"""Fields of ``statm``: all pages, resident pages, and pages of data and stacks."""


def resident_bytes() -> int:
    """Return the resident bytes of this process, libraries included."""
    return _bytes_at(_RESIDENT)


def address_space_bytes() -> int:
    """Return the mapped bytes of this process, used or not."""
    return _bytes_at(_MAPPED)


def open_early() -> None:
    """Open ``statm`` before the sandbox forbids it.

    Raises:
        OSError: it cannot be opened.
    """
    _SIZES.open()


class GrowthLimit:
    """Context in which the process's data may grow by a number of bytes at most.

    Beyond it allocations fail: in Python with a ``MemoryError``. The limit applies to the
    whole process, so another thread's allocation may fail, and a native library whose
    allocation fails may end the process. Without the limit the kernel would end it, or the
    machine would swap.
    """

    def __init__(self, n_bytes: int) -> None:
        self._n_bytes = n_bytes
        self._before = resource.getrlimit(resource.RLIMIT_DATA)
        self._last_bytes = _data_bytes()

    def __enter__(self) -> None:
        n_bytes = self._data_after_collection()
        soft, hard = self._before = resource.getrlimit(resource.RLIMIT_DATA)
        limit = n_bytes + self._n_bytes
        if soft == resource.RLIM_INFINITY or limit < soft:
            resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        resource.setrlimit(resource.RLIMIT_DATA, self._before)

    def _data_after_collection(self) -> int:
        """Return the data bytes, after collecting garbage if there may be much.

        An error's traceback may keep all allocations alive, in cycles that Python collects
        late.
        """
        n_bytes = _data_bytes()
        if n_bytes - self._last_bytes > self._n_bytes // 2:
            gc.collect()
            self._last_bytes = n_bytes = _data_bytes()
        return n_bytes


def _data_bytes() -> int:
    return _bytes_at(_DATA)


def _bytes_at(field: int) -> int:
    """Return a field of ``statm`` in bytes."""
    return int(_SIZES.read().split()[field]) * resource.getpagesize()
