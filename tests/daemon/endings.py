"""The ways in which a request ends before its time, and what may be left of it."""

import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.daemon.harness import N_ROUND_TRIPS, Connection, DaemonProcess, Listener

End = Callable[[DaemonProcess, Connection, str], None]

WINDOW_S: Final = 0.1
"""Seconds in which a busy process is seen to use processor time, counted in hundredths."""


def by_cancel(_: DaemonProcess, client: Connection, request_id: str) -> None:
    """Cancel it on its own connection."""
    client.send({"type": "cancel", "id": request_id})


def by_operator(daemon: DaemonProcess, client: Connection, request_id: str) -> None:
    """Cancel it on the admin socket, unless it is over, or too fresh to be known."""
    with daemon.admin() as listener:
        if not listener.order("cancel", id=request_id)["ok"]:
            by_cancel(daemon, client, request_id)


def by_leaving(_: DaemonProcess, client: Connection, request_id: str) -> None:
    """Close its connection."""
    client.close()


def by_deadline(_: DaemonProcess, client: Connection, request_id: str) -> None:
    """Do nothing: its deadline ends it."""


WAYS: Final[Mapping[str, End]] = {
    "cancel": by_cancel,
    "operator": by_operator,
    "leaving": by_leaving,
    "deadline": by_deadline,
}


def places(listener: Listener) -> tuple[int, int]:
    """Count the requests that run and those that wait."""
    text = listener.order("metrics")["text"]
    active, queued = (
        re.search(rf"^inferd_{name}_requests (\S+)$", text, re.MULTILINE)
        for name in ("active", "queued")
    )
    assert active is not None
    assert queued is not None
    return int(float(active[1])), int(float(queued[1]))


def is_idle(daemon: DaemonProcess) -> bool:
    """Look whether its only worker uses no processor time."""
    [pid] = daemon.worker_pids()
    with daemon.admin() as listener:
        before, end = _ticks(pid), time.monotonic() + WINDOW_S
        while time.monotonic() < end:
            listener.order("backends")
        return _ticks(pid) == before


def resources_of(daemon: DaemonProcess) -> dict[int, tuple[int, int]]:
    """Count the descriptors and threads of the daemon and of its worker.

    Among them is a connection on which it is heard that the others, which were closed
    before, are closed at the other end as well.
    """
    with daemon.admin() as listener:
        for _ in range(N_ROUND_TRIPS):
            listener.order("backends")
        pids = (daemon.pid, *daemon.worker_pids())
        return {pid: (_count(pid, "fd"), _count(pid, "task")) for pid in pids}


def no_more(
    now: Mapping[int, tuple[int, int]], then: Mapping[int, tuple[int, int]]
) -> bool:
    """Tell whether nobody holds more: a thread that waited for work may have ended."""
    return now.keys() == then.keys() and all(
        held <= limit
        for pid in now
        for held, limit in zip(now[pid], then[pid], strict=True)
    )


def _count(pid: int, what: str) -> int:
    return len([*Path(f"/proc/{pid}/{what}").iterdir()])


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return int(fields[11]) + int(fields[12])
