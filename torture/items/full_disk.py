"""R10: a disk that is full, and writes that fail, under the daemon's log."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.daemon.harness import Connection, DaemonProcess, eventually, mock
from torture.litter import check_left, settled
from torture.outcome import Context
from torture.victim import Victim, running

KEY: Final = "R10"
NAME: Final = "A full disk under the log, and writes that fail"

CONFIG: Final = {"backend": [mock()]}
ROOM_BYTES: Final = 256 * 1024
LINES: Final = 3000
"""Refusals: those of one user that have a line in the log take more than there is room
for."""
AT_ONCE: Final = 500
ATTACHED_S: Final = 60.0
FAILING: Final = "inject=write:error=EIO:when=2+2"
"""Every other write fails."""


def run(context: Context) -> None:
    """Fill the disk that the log is on; service goes on, and the log once there is room."""
    _on_a_device_that_is_always_full(context)
    if os.geteuid() == 0:
        _on_a_small_disk(context)
    else:
        context.notes.append("small disk: skipped, needs root")
    if shutil.which("strace") is None:
        context.notes.append("failing writes: skipped, needs strace")
    else:
        _with_failing_writes(context)


def log_much(
    context: Context,
    daemon: DaemonProcess,
    n_lines: int,
    connect: Callable[[int], Connection] | None = None,
) -> None:
    """Have many requests refused, each of which is a line of the log.

    Args:
        context: counts them.
        daemon: refuses them.
        n_lines: requests.
        connect: makes the connection of a number; of one user, there are fewer lines.
    """
    refused = b'{"id":"r","messages":[]}\n'
    for n in range(n_lines // AT_ONCE):
        with connect(n) if connect else daemon.connect() as client:
            client.send_raw(refused * AT_ONCE)
            codes = {client.frame()["code"] for _ in range(AT_ONCE)}
            context.require(codes == {"invalid_request"}, f"refused with {codes}")
    context.counts["log_lines"] = context.counts.get("log_lines", 0) + n_lines


def check_serves(context: Context, daemon: DaemonProcess, when: str) -> None:
    """See that requests are answered, and that admin is."""
    last = daemon.ask("hello")[-1]
    context.require(last["type"] == "done", f"{when}: {last}")
    with daemon.admin() as operator:
        operator.until("ready")
        context.require(operator.order("backends")["ok"], f"{when}: admin is silent")


def _on_a_device_that_is_always_full(context: Context) -> None:
    daemon = Victim(CONFIG)
    daemon.stderr_fd = os.open("/dev/full", os.O_WRONLY)
    try:
        with running(daemon):
            log_much(context, daemon, LINES)
            check_serves(context, daemon, "on a full device")
    finally:
        os.close(daemon.stderr_fd)


@contextmanager
def small_disk() -> Iterator[Path]:
    """Mount a file system of 256 KiB while inside.

    Raises:
        CalledProcessError: this process may not mount.
    """
    with TemporaryDirectory(prefix="disk-") as place:
        options = ("-t", "tmpfs", "-o", f"size={ROOM_BYTES}", "tmpfs", place)
        subprocess.run(["mount", *options], check=True, stderr=subprocess.PIPE)
        try:
            yield Path(place)
        finally:
            subprocess.run(["umount", place], check=True)


def _on_a_small_disk(context: Context) -> None:
    try:
        with small_disk() as disk:
            _fill(context, disk)
    except subprocess.CalledProcessError as error:
        words = error.stderr.decode(errors="replace").strip() if error.stderr else ""
        context.notes.append(f"small disk: skipped, cannot be mounted: {words}")


def _fill(context: Context, disk: Path) -> None:
    log, ballast = disk / "log", disk / "ballast"
    ballast.write_bytes(b"x" * (ROOM_BYTES * 7 // 8))
    daemon = Victim(CONFIG)
    daemon.stderr_fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        with running(daemon):
            before = settled(daemon)
            log_much(context, daemon, LINES)
            is_full = eventually(lambda: not shutil.disk_usage(disk).free)
            context.require(is_full, "the log does not fill the disk")
            check_serves(context, daemon, "on a full disk")
            ballast.unlink()
            size = log.stat().st_size
            daemon.ask("hello")
            is_more = eventually(lambda: log.stat().st_size > size)
            context.require(is_more, "the log does not go on once there is room")
            check_left(context, daemon, before)
    finally:
        os.close(daemon.stderr_fd)


def _with_failing_writes(context: Context) -> None:
    with running(Victim(CONFIG, excused=("log.dropped",))) as daemon:
        log = daemon.scratch / "stderr"
        command = ["strace", "-f", "-q", "-o", "/dev/null", "-P", str(log)]
        command += ["-e", "trace=write", "-e", FAILING, "-p", str(daemon.pid)]
        with subprocess.Popen(command, stderr=subprocess.PIPE) as tracer:
            if not eventually(lambda: _is_traced(daemon.pid), within_s=ATTACHED_S):
                tracer.terminate()
                context.notes.append("failing writes: skipped, strace cannot attach")
                return
            began_at = time.monotonic()
            log_much(context, daemon, AT_ONCE)
            check_serves(context, daemon, "with writes that fail")
            context.figures["with_failing_writes_s"] = round(
                time.monotonic() - began_at, 1
            )
            tracer.terminate()


def _is_traced(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    return "TracerPid:\t0\n" not in status
