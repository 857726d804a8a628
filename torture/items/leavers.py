"""R8: clients that leave, or cancel, in the middle of an answer."""

import time
from typing import Final

from tests.daemon.endings import is_idle
from tests.daemon.harness import Connection, DaemonProcess, eventually, generate, mock
from torture.litter import check_left, metric, settled
from torture.outcome import Context
from torture.victim import Victim, running

KEY: Final = "R8"
NAME: Final = "Clients that leave or cancel while they are answered"

ENDLESS: Final = mock(tokens=["x"] * 10_000, token_delay_ms=2)
CONFIG: Final = {
    "backend": [ENDLESS],
    "admission": {"max_active": 1, "max_queued": 4},
}
LONG: Final = generate("hello", max_tokens=10_000)
MAX_TOKENS: Final = 20
"""Most that a client reads before it leaves."""


def run(context: Context) -> None:
    """Leave again and again; the place has to be free at once, and the worker quiet."""
    freed: list[float] = []
    with running(Victim(CONFIG)) as daemon:
        before = settled(daemon)
        for number in range(context.pick(short=25, full=1000)):
            left_at = _leave(context, daemon, f"leaver-{number}")
            _be_next(context, daemon)
            freed.append(time.monotonic() - left_at)
        context.counts["leavers"] = len(freed)
        context.measure("next_answered", freed)
        _see_quiet(context, daemon)
        check_left(context, daemon, before)


def _leave(context: Context, daemon: DaemonProcess, request_id: str) -> float:
    """Leave after some tokens, half of the times with a word; give when."""
    with Connection(daemon.infer_sock) as leaver:
        leaver.send({**LONG, "id": request_id})
        for _ in range(context.rng.randrange(MAX_TOKENS)):
            leaver.frame()
        left_at = time.monotonic()
        if context.rng.randrange(2):
            leaver.send({"type": "cancel", "id": request_id})
            last = leaver.frames()[-1]
            is_cancelled = last.get("stop_reason") == "cancelled"
            context.require(is_cancelled, f"a cancelled request ended in {last}")
    return left_at


def _be_next(context: Context, daemon: DaemonProcess) -> None:
    """Take the only place."""
    with Connection(daemon.infer_sock) as successor:
        last = successor.ask({**LONG, "max_tokens": 1})[-1]
    context.require(last.get("stop_reason") == "length", f"the next one: {last}")


def _see_quiet(context: Context, daemon: DaemonProcess) -> None:
    """See that the worker says nothing to nobody."""
    is_quiet = eventually(lambda: is_idle(daemon))
    context.require(is_quiet, "the worker goes on with what nobody reads")
    n_active = metric(daemon, "inferd_active_requests")
    context.require(not n_active, f"{n_active:.0f} places are taken")
