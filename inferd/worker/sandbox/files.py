"""What a worker may still read once Landlock holds it. It may run nothing."""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from inferd.sandbox import landlock
from inferd.sandbox.landlock import READ_DIR, READ_FILE, WRITE_FILE

_LIBRARIES: Final = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib")
_STORES: Final = ("/nix/store", "/gnu/store")
"""Where some systems have all that is installed."""
_FACTS: Final = (
    *("/proc", "/sys/devices/system", "/dev/urandom"),
    *("/etc/ld.so.cache", "/etc/localtime", "/usr/share/zoneinfo"),
)
"""What libraries ask of the machine."""
_LIBRARY_VARIABLES: Final = ("LD_LIBRARY_PATH", "LLAMA_CPP_LIB_PATH")
"""Where operators say that libraries are."""


def restrict(models: Iterable[int]) -> int:
    """Give up all files but models, Python, its libraries and facts of the machine.

    Args:
        models: descriptors of what may be opened by their own paths.

    Returns:
        Landlock's version; 0 where the kernel has none, so that nothing is given up.

    Raises:
        OSError: the kernel refused.
    """
    with ExitStack() as cleanup:
        allowed = [(fd, READ_FILE) for fd in models]
        for path, rights in _places():
            with suppress(OSError):  # not every machine has them all
                fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
                cleanup.callback(os.close, fd)
                allowed.append((fd, rights if path.is_dir() else rights & ~READ_DIR))
        return landlock.restrict(allowed)


def _places() -> Iterator[tuple[Path, int]]:
    """Give what may be read or written to, with all beneath."""
    prefixes = {Path(sys.prefix), Path(sys.base_prefix), Path(sys.base_exec_prefix)}
    for prefix in prefixes:
        for part in ("lib", "lib64", "pyvenv.cfg"):
            yield prefix / part, READ_FILE | READ_DIR
    named = [
        place
        for variable in _LIBRARY_VARIABLES
        for place in os.environ.get(variable, "").split(":")
    ]
    for place in (*_LIBRARIES, *_STORES, *_FACTS, *sys.path, *named):
        if place:
            yield Path(place), READ_FILE | READ_DIR
    yield Path(os.devnull), READ_FILE | WRITE_FILE
