"""R9: a daemon with 64 descriptors, and more clients than that."""

import os
import signal
import time
from contextlib import ExitStack
from typing import Final

from tests.daemon.harness import Connection, eventually, mock
from torture.litter import check_left, settled
from torture.outcome import MS, Context
from torture.victim import Victim, running

KEY: Final = "R9"
NAME: Final = "No descriptor left"

N_FILES: Final = 64
STARVED: Final = ("sh", "-c", f'ulimit -n {N_FILES}; exec "$@"', "sh")
CONFIG: Final = {"backend": [mock()]}
NO_FILES: Final = "library.message"
"""What trio says when it cannot accept."""
HOLD_S: Final = 1.0
MAX_LINES_A_SECOND: Final = 200
PATIENCE_S: Final = 5.0


def run(context: Context) -> None:
    """Take all descriptors, look whether admin answers, kill the worker, let go."""
    with running(Victim(CONFIG, prefix=STARVED, excused=[NO_FILES])) as daemon:
        before = settled(daemon)
        for _ in range(context.pick(short=1, full=20)):
            with ExitStack() as clients:
                _crowd_in(context, daemon, clients)
            is_served = eventually(lambda: daemon.ask("hello")[-1]["type"] == "done")
            context.require(is_served, "afterwards: nobody is served")
        context.counts["clients"] = context.pick(short=100, full=200)
        check_left(context, daemon, before)


def _crowd_in(context: Context, daemon: Victim, clients: ExitStack) -> None:
    operator = clients.enter_context(daemon.admin())
    operator.until("ready")
    n_lines = len(daemon.log_lines())
    for _ in range(context.pick(short=100, full=200)):
        clients.enter_context(Connection(daemon.infer_sock))
    time.sleep(HOLD_S)
    began_at = time.monotonic()
    context.require(operator.order("backends")["ok"], "an old listener is not answered")
    took_ms = (time.monotonic() - began_at) * MS
    context.figures["admin_ms"] = round(took_ms, 1)
    context.expect(_admin_answers(daemon), "admin takes no new listener")
    _kill_worker(context, daemon)
    lines = (len(daemon.log_lines()) - n_lines) / (time.monotonic() - began_at + HOLD_S)
    context.figures["log_lines_per_s"] = round(lines, 1)
    context.require(lines < MAX_LINES_A_SECOND, f"the log has {lines:.0f} lines/s")


def _admin_answers(daemon: Victim) -> bool:
    try:
        with Connection(daemon.admin_sock, timeout_s=PATIENCE_S) as newcomer:
            return bool(newcomer.frame()["type"] == "status")
    except (TimeoutError, AssertionError):
        return False


def _kill_worker(context: Context, daemon: Victim) -> None:
    """A new worker needs descriptors: it may have to wait, the daemon must not end."""
    for pid in daemon.workers():
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: not daemon.is_running, within_s=HOLD_S)
    context.require(daemon.is_running, "the daemon ended as a worker was to be started")
