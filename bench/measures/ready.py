"""From nothing to ready: a command is typed, and the first request can be sent."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from bench.figures import Goal, Reading
from bench.lab import Lab, Measure, Take, in_turns
from bench.sides import our_daemon, our_peer

N_SLOTS: Final = 2
N_CTX: Final = 4096


@contextmanager
def ready(lab: Lab) -> Iterator[Take]:
    """Start every side and end it again; its file is in the page cache."""
    starts: dict[str, Callable[[], float]] = {
        name: partial(daemon_s, lab, checkout) for name, checkout in lab.daemons.items()
    }
    if lab.has("peer"):
        starts["peer"] = partial(peer_s, lab)

    def take(number: int) -> Reading:
        return Reading(in_turns(number, starts))

    take(0)
    yield take


def daemon_s(lab: Lab, checkout: Path | None) -> float:
    """Give the seconds from ``inferd serve`` to sockets that are ready."""
    with our_daemon(lab, n_slots=N_SLOTS, n_ctx=N_CTX, checkout=checkout) as daemon:
        return daemon.ready_s


def peer_s(lab: Lab) -> float:
    """Give the seconds from ``llama-server`` to a healthy answer."""
    with our_peer(lab, n_slots=N_SLOTS, n_ctx=N_CTX) as peer:
        return peer.ready_s


READY: Final = Measure(
    key="ready_s",
    title="from the command to ready",
    unit="s",
    is_more_better=False,
    open=ready,
    goals=(Goal("ratio_peer", at_most=1.5),),
    reasons={"raw": "llama.cpp's benchmarks are never ready: they end"},
)
