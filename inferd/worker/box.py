"""The worker's own box: what it gives up before any native code of a library runs.

What is given up is gone for this process and all that it starts. What the kernel does not
have is left out, and told.

The rule for accelerators: a backend that puts layers on one, ``n_gpu_layers`` other than
0, needs the devices, sockets and helpers of its driver, so nothing is given up but
privileges, core files and descriptors. Every other backend gives up the network, other
processes and to start any, all that it could write to, and all that it could read but its model, Python
and the libraries.
"""

import ctypes
import os
import resource
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from inferd.config import BackendSettings, LlamaCppSettings
from inferd.ipc import Boxed
from inferd.worker import landlock, seccomp
from inferd.worker.landlock import EXECUTE, READ_DIR, READ_FILE, WRITE_FILE
from inferd.worker.limits import WORKER_OPEN_FILES

PR_SET_NO_NEW_PRIVS: Final = 38

_CAPABILITY_VERSION: Final = 0x2008_0522
_KEPT_CAPABILITIES: Final = 1 << 2
"""Of root's: to read files whatever their modes are. Which ones is Landlock's to say."""

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
_LOADERS: Final = ("/lib64", "/lib", "/usr/lib")
"""Where the program is that starts programs; the kernel runs it in their place."""


def give_up_privileges() -> None:
    """Gain none by starting programs, leave no core files, open no more than is needed."""
    ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    for what, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, WORKER_OPEN_FILES),
    ):
        _, hard = resource.getrlimit(what)
        bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
        with suppress(OSError):  # a filter of system calls around us
            resource.setrlimit(what, (bound, bound))


def enter(
    settings: BackendSettings,
    models: Iterable[int] = (),
    start: Callable[[], object] = lambda: None,
) -> Boxed:
    """Give up what this backend has no use for; one thread runs so far.

    Args:
        settings: of the backend.
        models: descriptors of the files that its library opens.
        start: starts what it needs, in the same box; nothing can be started later.
    """
    if isinstance(settings, LlamaCppSettings) and settings.n_gpu_layers:
        return Boxed(is_open=True)
    _drop_capabilities()
    try:
        version = _restrict_files(models)
    except OSError:  # a filter of system calls around us
        version = 0
    is_restricted = seccomp.restrict()
    start()
    return Boxed(landlock=version, seccomp=seccomp.refuse_children() and is_restricted)


def enter_to_prepare() -> None:
    """Give up what a preparer has no use for: all but to fork, which its forks give up."""
    _drop_capabilities()
    with suppress(OSError):  # a filter of system calls around us
        _restrict_files(())
    seccomp.restrict()


def _drop_capabilities() -> None:
    """Give up what root can do beyond others: with it, memory of others can be read."""
    libc = ctypes.CDLL(None)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; and high halves
    if libc.capget(header, sets) == 0:
        kept = [sets[place] & _KEPT_CAPABILITIES for place in (0, 1)]
        libc.capset(header, (ctypes.c_uint32 * 6)(*kept))


def _restrict_files(models: Iterable[int]) -> int:
    with ExitStack() as cleanup:
        allowed = [(fd, READ_FILE) for fd in models]
        for path, rights in _places():
            with suppress(OSError):  # not every machine has them all
                fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
                cleanup.callback(os.close, fd)
                allowed.append((fd, rights if path.is_dir() else rights & ~READ_DIR))
        return landlock.restrict(allowed)


def _places() -> Iterator[tuple[Path, int]]:
    """Give what may be read, written to or executed, with all beneath."""
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
    for program in (Path(sys.executable), *_loaders()):
        yield program, READ_FILE | EXECUTE


def _loaders() -> Iterator[Path]:
    for directory in _LOADERS:
        yield from Path(directory).glob("ld-*.so*")
