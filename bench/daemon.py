"""A daemon of one's own with any configuration, and what its processes cost."""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

START_S: Final = 300.0
"""Seconds the daemon gets to bind its sockets: it does so once its model is loaded."""
STOP_S: Final = 20.0
"""Seconds it gets to drain."""
POLL_S: Final = 0.01
"""Seconds between two looks at whether somebody serves."""


@dataclass(frozen=True, slots=True)
class RunningDaemon:
    """A daemon that serves."""

    pid: int
    directory: Path
    """Where its sockets are."""
    config: Path
    """The file with its configuration."""
    ready_s: float
    """Seconds it took to open them."""

    @property
    def worker_pids(self) -> list[int]:
        """The processes it has started."""
        stats = [(int(path.name), stat_fields(path)) for path in processes()]
        return [pid for pid, fields in stats if fields and int(fields[1]) == self.pid]


@contextmanager
def running_daemon(
    tables: str, *leaves: str, checkout: Path | None = None
) -> Iterator[RunningDaemon]:
    """Run a daemon while inside.

    Args:
        tables: its configuration, all but ``[listen]``.
        leaves: file names of the sockets to wait for.
        checkout: of another revision, with its own environment; this one without.
    """
    python = str(checkout / ".venv/bin/python") if checkout else sys.executable
    with tempfile.TemporaryDirectory(prefix="inferd-bench-") as scratch:
        directory = Path(scratch) / "run"
        config = Path(scratch) / "config.toml"
        config.write_text(f'[listen]\ndirectory = "{directory}"\n{tables}')
        log = Path(scratch) / "daemon.log"
        began_at = time.monotonic()
        with log.open("w") as stderr:
            process = subprocess.Popen(
                [python, "-m", "inferd", "serve", "--config", str(config)],
                cwd=checkout,
                stdin=subprocess.DEVNULL,
                stderr=stderr,
                env={**os.environ, "NOTIFY_SOCKET": "", "INFERD_LOG_DIR": ""},
            )
        with ended_at_exit(process):
            for leaf in leaves:
                wait_until_open(directory / leaf, process, log)
            ready_s = time.monotonic() - began_at
            yield RunningDaemon(process.pid, directory, config, ready_s=ready_s)


@contextmanager
def ended_at_exit(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """On leaving, ask a process to end, and make it do so if it takes too long."""
    try:
        yield
        process.terminate()
        process.wait(STOP_S)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def wait_until_open(path: Path, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a socket takes connections; its owner's last words if it never does."""
    deadline = time.monotonic() + START_S
    while not is_open(path):
        if process.poll() is not None or time.monotonic() > deadline:
            words = log.read_text().strip().splitlines()[-1:]
            sys.exit(f"{path.name} does not open: {' '.join(words)}")
        time.sleep(POLL_S)


def is_open(path: Path) -> bool:
    """Tell whether a socket takes connections."""
    with socket.socket(socket.AF_UNIX) as sock:
        return not sock.connect_ex(str(path))


def connected(path: Path) -> socket.socket:
    """Connect to a socket."""
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(str(path))
    return sock


def cpu_s(pid: int) -> float:
    """Give the processor time that a process has taken, its ended threads' too."""
    fields = stat_fields(Path("/proc") / str(pid))
    if not fields:
        raise ProcessLookupError(pid)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int, field: str = "Rss") -> float:
    """Give a process's memory in MB (10⁶ bytes): ``Rss``, or ``Pss`` to add up."""
    rollup = Path("/proc") / str(pid) / "smaps_rollup"
    sizes = dict(line.split(":", 1) for line in rollup.read_text().splitlines()[1:])
    return int(sizes[field].split()[0]) * 1024 / 1e6


def processes() -> list[Path]:
    """List all processes that there are."""
    return list(Path("/proc").glob("[0-9]*"))


def stat_fields(process: Path) -> list[str]:
    """Read a process's state from its third field on; nothing if it has ended."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
