"""Memory of other processes of this user, as the kernel counts it."""

import os
from pathlib import Path


def resident_bytes(pid: int, proc: Path = Path("/proc")) -> int | None:
    """Return the resident bytes of a process; ``None`` if the kernel does not tell.

    It tells nothing of a process that is gone, nor, where ``/proc`` hides other users'
    processes, of one that cannot be inspected, as the worker of a remote engine.
    """
    try:
        sizes = (proc / str(pid) / "statm").read_text().split()
    except OSError:
        return None
    return int(sizes[1]) * os.sysconf("SC_PAGE_SIZE")
