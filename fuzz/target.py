"""A real daemon to fire at, and the signs that it is as it was before."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, Self

from fuzz.corpus import CLEAN, SURFACES, SurfaceName
from fuzz.judge import BrokenPromiseError
from fuzz.process import n_fds, n_threads, rss_bytes
from inferd import surfaces
from inferd.limits.server import OFFLOAD_LINE_BYTES
from tests.daemon.harness import Connection, DaemonProcess, eventually, mock

LEAVES: Final[Mapping[SurfaceName, str]] = {
    "v1": surfaces.INFER.socket,
    "v2": surfaces.V2.socket,
    "embed": surfaces.EMBED.socket,
    "rerank": surfaces.RERANK.socket,
    "admin": surfaces.ADMIN.socket,
}
SCRIPT: Final = (
    *("<think>", "so", "</think>", "Hel", "lo ", "w\u00f6rld", "x", "!"),
    *("<tool_call>", '{"name":"f","arguments":{"a":1}}', "</tool_call>"),
)
CONFIG: Final = {
    "admission": {"max_active": 1, "max_queued": 12},
    "backend": [mock(tokens=list(SCRIPT))],
}
"""One permit, so that a lost one is noticed; a queue that hostile clients can fill."""

STILL_S: Final = 0.5
"""Seconds without a change after which a daemon counts as idle."""
SETTLE_S: Final = 60.0
"""Seconds that what was abandoned may take to go."""
MIB: Final = 1024 * 1024
MAX_GROWTH_BYTES: Final = (48 + 64) * MIB
"""What the daemon's heap may be larger: lines of a megabyte at once on all connections, and what
glibc keeps at its end once blocks of 32 MiB have been freed, twice as much as one of them."""


class Signs(NamedTuple):
    """What has to be the same when everybody has gone."""

    pid: int
    worker_pids: list[int]
    n_fds: int
    n_threads: int
    requests: list[object]

    @classmethod
    def of(cls, daemon: DaemonProcess) -> Self:
        """Look at a daemon; nothing else may be connected to it.

        Whoever looks has gone by then, as far as the daemon is concerned, too.
        """
        n_while_asking = 0

        def note() -> None:
            nonlocal n_while_asking
            n_while_asking = n_fds(daemon.pid)

        frames = ask(daemon, "admin", b'{"command":"requests"}', at_last=note)
        requests = frames[-1]["requests"]
        eventually(lambda: n_fds(daemon.pid) < n_while_asking, within_s=SETTLE_S)
        return cls(
            pid=daemon.pid if daemon.is_running else 0,
            worker_pids=sorted(daemon.worker_pids()),
            n_fds=n_fds(daemon.pid),
            n_threads=n_threads(daemon.pid),
            requests=requests,
        )


LARGE: Final = b'{"id":"","messages":[{"role":"user","content":"%s"}]}' % (
    b"x" * OFFLOAD_LINE_BYTES
)
"""A sound request that another process reads."""


class Target:
    """A daemon that must outlive whatever happens to it while inside ``unharmed``."""

    def __init__(self, daemon: DaemonProcess) -> None:
        self.daemon = daemon
        for surface in SURFACES:
            check_clean(daemon, surface)  # what is made at the first use is there now
        ask(daemon, "v1", LARGE)
        self._signs = self._settled(_Still())
        self._rss_bytes = rss_bytes(daemon.pid)

    def warmed_up(self) -> None:
        """Measure memory from here on."""
        self._rss_bytes = rss_bytes(self.daemon.pid)

    @property
    def growth_bytes(self) -> int:
        """What the daemon's memory is larger by now."""
        return rss_bytes(self.daemon.pid) - self._rss_bytes

    def check(self, *, max_growth_bytes: int = MAX_GROWTH_BYTES) -> None:
        """See that nothing is left of those who were here.

        Args:
            max_growth_bytes: what its memory may be larger.

        Raises:
            BrokenPromiseError: something is.
        """
        signs = self._settled(lambda now: now == self._signs)
        if signs != self._signs:
            raise BrokenPromiseError(f"it was {self._signs}, it is {signs}")
        for surface in SURFACES:
            check_clean(self.daemon, surface)
        if self.growth_bytes > max_growth_bytes:
            raise BrokenPromiseError(f"memory grew by {self.growth_bytes >> 20} MiB")

    def _settled(self, is_settled: Callable[[Signs], bool]) -> Signs:
        """Look until the signs are as wanted, or for as long as they may take."""
        seen: list[Signs] = []

        def look() -> bool:
            seen.append(Signs.of(self.daemon))
            return is_settled(seen[-1])

        eventually(look, within_s=SETTLE_S)
        return seen[-1]


class _Still:
    """Whether the signs have been the same for a while: whoever saw it start has gone."""

    def __init__(self) -> None:
        self._last: Signs | None = None
        self._since = 0.0

    def __call__(self, now: Signs) -> bool:
        """Look once more."""
        if now != self._last:
            self._last, self._since = now, time.monotonic()
        return time.monotonic() - self._since > STILL_S


@contextmanager
def target() -> Iterator[Target]:
    """Run a daemon while inside; then end it and see that its log tells of no bug.

    Raises:
        AssertionError: it does, or the daemon did not end as it should.
    """
    daemon = DaemonProcess(CONFIG)
    try:
        daemon.start()
        yield Target(daemon)
    finally:
        daemon.finish()


def ask(
    daemon: DaemonProcess,
    surface: SurfaceName,
    line: bytes,
    *,
    at_last: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """Send one line on a connection of its own; give the frames up to its end.

    Args:
        daemon: to be asked.
        surface: of the line.
        line: without its newline.
        at_last: called before the connection is closed.
    """
    with Connection(daemon.directory / LEAVES[surface]) as connection:
        connection.send_raw(line + b"\n")
        frames = [connection.frame()]
        while not is_terminal(frames[-1]):
            frames.append(connection.frame())
        at_last()
        return frames


def check_clean(daemon: DaemonProcess, surface: SurfaceName) -> None:
    """See that a sound request is answered.

    Raises:
        BrokenPromiseError: it is not.
    """
    last = ask(daemon, surface, CLEAN[surface])[-1]
    if last["type"] == "error" or last.get("ok") is False:
        raise BrokenPromiseError(f"a sound request on {surface} got {json.dumps(last)}")


def is_terminal(frame: Mapping[str, object]) -> bool:
    """Tell whether a frame ends the answer to a request, or to a command."""
    return frame.get("type") in ("done", "embeddings", "rerank", "error", "reply")
