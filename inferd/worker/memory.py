"""Bound the memory that a piece of work may take."""

import gc
import resource
from pathlib import Path
from types import TracebackType
from typing import Final

from inferd.worker.kept import KeptFile

_SIZES: Final = KeptFile(Path("/proc/self/statm"))
_SPACE: Final = 0
_RESIDENT: Final = 1
_DATA: Final = 5
"""Where in it stand all pages, those in memory, and those of data and stacks."""


def resident_bytes() -> int:
    """Tell what this process takes by now: itself, its libraries, all that it has made."""
    return _bytes_at(_RESIDENT)


def address_space_bytes() -> int:
    """Tell what this process has mapped by now, used or not."""
    return _bytes_at(_SPACE)


def hold_open() -> None:
    """Open what the kernel tells this by; later it may be too late.

    Raises:
        OSError: it cannot be opened.
    """
    _SIZES.open()


class BoundedGrowth:
    """While it is entered, the process may grow by so many bytes, and no further.

    Then allocations fail: in Python that is a ``MemoryError``. The bound is the whole
    process's, so it may be another thread that asks in vain, and a native library that
    does so ends the process. Without a bound the kernel would, or the machine would swap.
    """

    def __init__(self, n_bytes: int) -> None:
        self._n_bytes = n_bytes
        self._before = resource.getrlimit(resource.RLIMIT_DATA)
        self._held = _data_bytes()

    def __enter__(self) -> None:
        held = self._data_without_rubbish()
        soft, hard = self._before = resource.getrlimit(resource.RLIMIT_DATA)
        bound = held + self._n_bytes
        if soft == resource.RLIM_INFINITY or bound < soft:
            resource.setrlimit(resource.RLIMIT_DATA, (bound, hard))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        resource.setrlimit(resource.RLIMIT_DATA, self._before)

    def _data_without_rubbish(self) -> int:
        """Tell how much there is, with what an error has left behind taken out.

        Its traceback may hold all that was made, in circles that Python finds late.
        """
        held = _data_bytes()
        if held - self._held > self._n_bytes // 2:
            gc.collect()
            self._held = held = _data_bytes()
        return held


def _data_bytes() -> int:
    return _bytes_at(_DATA)


def _bytes_at(place: int) -> int:
    """Tell how much the kernel counts by now."""
    return int(_SIZES.read().split()[place]) * resource.getpagesize()
