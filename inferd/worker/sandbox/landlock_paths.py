"""The paths that a worker may still read under Landlock. It may execute nothing."""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from inferd.sandbox import landlock
from inferd.sandbox.landlock import READ_DIR, READ_FILE, WRITE_FILE

_LIBRARIES: Final = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib")
_STORES: Final = ("/nix/store", "/gnu/store")
"""Where some distributions install everything."""
_MACHINE_INFO: Final = (
    *("/proc", "/sys/devices/system", "/dev/urandom"),
    *("/etc/ld.so.cache", "/etc/localtime", "/usr/share/zoneinfo"),
)
"""Information about the machine that libraries read."""
_LIBRARY_VARIABLES: Final = ("LD_LIBRARY_PATH", "LLAMA_CPP_LIB_PATH")
"""Variables in which operators name library directories."""


_RESOLVER_FILES: Final = (
    *("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/host.conf"),
    *("/etc/gai.conf", "/etc/services", "/etc/protocols"),
)
"""What the C library reads to find hosts."""


def restrict_to_paths(models: Iterable[int], ports: Sequence[int] = ()) -> int:
    """Restrict files to models, Python, its libraries and information about the machine.

    Args:
        models: descriptors of files that may be opened by their own paths.
        ports: to which TCP connections may be made; with any, the resolver's files may be
            read as well.

    Returns:
        Landlock's version; 0 if the kernel has none, so that nothing is restricted.

    Raises:
        OSError: the kernel refused.
    """
    with ExitStack() as cleanup:
        allowed = [(fd, READ_FILE) for fd in models]
        for path, rights in _allowed_paths(_RESOLVER_FILES if ports else ()):
            with suppress(OSError):  # not every machine has them all
                fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
                cleanup.callback(os.close, fd)
                allowed.append((fd, rights if path.is_dir() else rights & ~READ_DIR))
        return landlock.restrict(allowed, ports=ports)


def _allowed_paths(others: Sequence[str]) -> Iterator[tuple[Path, int]]:
    """Yield paths with the rights over them and all beneath."""
    prefixes = {Path(sys.prefix), Path(sys.base_prefix), Path(sys.base_exec_prefix)}
    for prefix in prefixes:
        for part in ("lib", "lib64", "pyvenv.cfg"):
            yield prefix / part, READ_FILE | READ_DIR
    named = [
        path
        for variable in _LIBRARY_VARIABLES
        for path in os.environ.get(variable, "").split(":")
    ]
    for path in (*_LIBRARIES, *_STORES, *_MACHINE_INFO, *sys.path, *named, *others):
        if path:
            yield Path(path), READ_FILE | READ_DIR
    yield Path(os.devnull), READ_FILE | WRITE_FILE
