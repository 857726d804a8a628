"""R11: nobody reads the daemon's log, or its reader has gone."""

import os
import re
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

from tests.daemon.harness import DaemonProcess, generate, mock
from tests.daemon.users import SHARED_GROUP, connect_as, open_to_all
from torture.items.full_disk import check_serves, log_much
from torture.items.permissions import passable
from torture.litter import check_left, settled
from torture.outcome import MS, Context, percentile
from torture.victim import Victim, running

KEY: Final = "R11"
NAME: Final = "A log that nobody reads"

CONFIG: Final = {"backend": [mock()], "listen": {"group": SHARED_GROUP}}
LINES: Final = 8000
"""More than wait in the daemon, beside what a pipe holds."""
FIRST_UID: Final = 70_200
"""Of users who each cause as many lines as one user may."""
N_PINGS: Final = 100
MAX_P99_MS: Final = 50.0
READ_BYTES: Final = 64 * 1024


def run(context: Context) -> None:
    """Stall the reader, look, and read on; then let it go."""
    if os.geteuid() == 0:
        _stalled(context)
    else:
        context.notes.append("stalled: skipped, needs root to be many users")
    _closed(context)


def _stalled(context: Context) -> None:
    heard = bytearray()
    daemon = open_to_all(Victim(CONFIG))
    ours, theirs = os.pipe()
    daemon.stderr_fd = theirs
    reader = threading.Thread(target=_read_all, args=(ours, heard))
    try:
        with passable(Path(tempfile.gettempdir())), running(daemon):
            os.close(theirs)
            before = settled(daemon)
            log_much(
                context, daemon, LINES, lambda n: connect_as(daemon, FIRST_UID + n)
            )
            _see_quick(context, daemon)
            reader.start()
            check_serves(context, daemon, "once it is read on")
            check_left(context, daemon, before)
    finally:
        if reader.is_alive():
            reader.join()
        os.close(ours)
    n_dropped = _dropped(bytes(heard))
    context.counts["dropped"] = n_dropped
    context.require(n_dropped > 0, "the log does not tell of lines that were dropped")


def _read_all(fd: int, heard: bytearray) -> None:
    while data := os.read(fd, READ_BYTES):
        heard += data


def _dropped(log: bytes) -> int:
    """Add up what the log says was dropped."""
    lines = [line for line in log.splitlines() if b"dropped" in line]
    numbers = [re.findall(rb'lines\w*"?[:=] ?(\d+)', line) for line in lines]
    return sum(int(each[0]) if each else 1 for each in numbers)


def _see_quick(context: Context, daemon: DaemonProcess) -> None:
    seconds: list[float] = []
    with daemon.connect() as client:
        for _ in range(N_PINGS):
            began_at = time.monotonic()
            client.ask(generate("hello"))
            seconds.append(time.monotonic() - began_at)
    context.measure("while_stalled", seconds)
    p99 = percentile(seconds, 99) * MS
    context.require_within(p99, MAX_P99_MS, "p99 with a stalled log")


def _closed(context: Context) -> None:
    daemon = Victim(CONFIG)
    ours, theirs = os.pipe()
    daemon.stderr_fd = theirs
    try:
        with running(daemon):
            os.close(ours)
            log_much(context, daemon, LINES // 4)
            check_serves(context, daemon, "with nobody to read the log")
    finally:
        os.close(theirs)
