"""What the kernel tells of a process."""

import os
from pathlib import Path
from typing import Final

PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


def rss_bytes(pid: int | None = None) -> int:
    """Give the memory that a process has in use; ours for ``None``."""
    statm = Path(f"/proc/{pid or os.getpid()}/statm").read_text()
    return int(statm.split()[1]) * PAGE_BYTES


def n_fds(pid: int) -> int:
    """Count the files that a process has open."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def n_threads(pid: int) -> int:
    """Count a process's threads."""
    return len(list(Path(f"/proc/{pid}/task").iterdir()))
