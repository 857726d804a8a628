"""What may be left behind, here and in a daemon, and how to see that nothing is."""

import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple, Self

from fuzz.process import n_fds, n_threads
from tests.daemon.bridge import bridges
from tests.daemon.harness import DaemonProcess, eventually, preloaded
from torture.outcome import Context

SETTLE_S: Final = 60.0
"""Seconds that what was abandoned may take to go: idle threads stay for ten."""
STILL_S: Final = 0.4
"""Seconds without a change after which a daemon counts as idle."""
SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108  # looked at, not written to


class Holdings(NamedTuple):
    """What a daemon holds while nobody asks anything of it."""

    n_workers: int
    n_fds: int
    n_threads: int
    n_tasks: int
    """As its metrics tell; 0 where they do not."""
    n_requests: int

    @classmethod
    def of(cls, daemon: DaemonProcess) -> Self:
        """Look at a daemon, over one connection."""
        with daemon.admin() as operator:
            operator.until("ready")
            requests = operator.order("requests")["requests"]
            text = operator.order("metrics")["text"]
            return cls(
                n_workers=len(daemon.worker_pids()),
                n_fds=n_fds(daemon.pid),
                n_threads=n_threads(daemon.pid),
                n_tasks=int(gauge(text, "inferd_tasks")),
                n_requests=len(requests),
            )

    def exceeds(self, before: Self) -> bool:
        """Tell whether there is more of anything, or a worker less."""
        is_more = any(now > then for now, then in zip(self, before, strict=True))
        return is_more or self.n_workers != before.n_workers


def gauge(metrics: str, name: str) -> float:
    """Read the sum of a metric's values out of Prometheus' text; 0 without it."""
    found = re.findall(rf"^{name}(?:{{.*}})? (\S+)$", metrics, re.MULTILINE)
    return sum(map(float, found))


def metric(daemon: DaemonProcess, name: str) -> float:
    """Ask a daemon for a metric, summed over its labels."""
    with daemon.admin() as operator:
        operator.until("ready")
        return gauge(operator.order("metrics")["text"], name)


def settled(daemon: DaemonProcess) -> Holdings:
    """Wait until a daemon's holdings stay as they are, and give them."""
    last, since = Holdings.of(daemon), time.monotonic()
    deadline = since + SETTLE_S
    while time.monotonic() < min(since + STILL_S, deadline):
        now = Holdings.of(daemon)
        if now != last:
            last, since = now, time.monotonic()
    return last


def check_left(context: Context, daemon: DaemonProcess, before: Holdings) -> None:
    """See that a daemon holds no more than it did."""
    seen = [before]

    def is_back() -> bool:
        seen.append(Holdings.of(daemon))
        return not seen[-1].exceeds(before)

    is_clean = eventually(is_back, within_s=SETTLE_S)
    context.require(is_clean, f"the daemon held {before}, now {seen[-1]}")


class Surroundings(NamedTuple):
    """What this process has, and what it shares with others."""

    n_fds: int
    children: frozenset[int]
    shared_memory: frozenset[str]

    @classmethod
    def now(cls) -> Self:
        """Look."""
        return cls(n_fds(os.getpid()), frozenset(children_of(os.getpid())), _segments())

    def litter(self) -> list[str]:
        """Name what is here now that was not."""
        now = Surroundings.now()
        more = [f"{now.n_fds - self.n_fds} descriptors"] * (now.n_fds > self.n_fds)
        more += [f"process {pid}" for pid in sorted(now.children - self.children)]
        return more + sorted(now.shared_memory - self.shared_memory)


def children_of(pid: int) -> list[int]:
    """List the processes that a process has started and not yet reaped."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended
            found += map(int, task.read_text().split())
    return found


def _segments() -> frozenset[str]:
    if not SHARED_MEMORY.is_dir():
        return frozenset()
    return frozenset(str(path) for path in SHARED_MEMORY.iterdir())


@contextmanager
def watched(context: Context) -> Iterator[None]:
    """Have a directory for temporary files while inside; then see that all is gone."""
    preloaded()  # it stays, for the daemons of all items, as does that of bridges
    bridges()
    before, environ, chosen = Surroundings.now(), dict(os.environ), tempfile.tempdir
    with tempfile.TemporaryDirectory(
        prefix="t-", dir="/tmp"
    ) as scratch:  # a socket's path is short
        os.environ["TMPDIR"] = tempfile.tempdir = scratch
        try:
            yield
        finally:
            tempfile.tempdir = chosen
            os.environ.clear()
            os.environ.update(environ)
        left = [path.name for path in Path(scratch).iterdir()]
    context.require(not left, f"temporary files are left: {left}")
    eventually(lambda: not before.litter(), within_s=SETTLE_S)
    litter = before.litter()
    context.require(not litter, f"left behind: {', '.join(litter)}")
