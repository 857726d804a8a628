"""Memory: of the daemon's process alone, and of all that serves a model."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from bench.daemon import RunningDaemon, memory_mb, running_daemon
from bench.figures import Goal, Reading
from bench.lab import Lab, Measure, OneSide, Take, reading
from bench.load.clients import clients_of
from bench.load.scene import Ask
from bench.prompts import story
from bench.sides import our_daemon, our_peer
from inferd import surfaces

N_SLOTS: Final = 2
N_CTX: Final = 4096
ANSWER_TOKENS: Final = 32
ALONE: Final = '[[backend]]\nname = "mock"\nkind = "mock"\n'
ASK: Final = Ask(turns=[("user", story(0))], max_tokens=ANSWER_TOKENS)
FREE_ASK: Final = Ask(turns=ASK.turns, max_tokens=ANSWER_TOKENS, is_forced=False)


@contextmanager
def serving(lab: Lab) -> Iterator[Take]:
    """Look at every side once it has answered something."""
    works: dict[str, Callable[[], OneSide]] = {
        name: partial(daemon_mb, lab, checkout)
        for name, checkout in lab.daemons.items()
    }
    if lab.has("peer"):
        works["peer"] = partial(peer_mb, lab)
    yield partial(reading, sides=works)


def daemon_mb(lab: Lab, checkout: Path | None) -> OneSide:
    """Start the daemon and look at it."""
    with our_daemon(lab, n_slots=N_SLOTS, n_ctx=N_CTX, checkout=checkout) as daemon:
        details = of_daemon(daemon, ASK)
    return OneSide(details["daemon"] + details["workers"], details)


def peer_mb(lab: Lab) -> OneSide:
    """Start llama-server and look at it."""
    with our_peer(lab, n_slots=N_SLOTS, n_ctx=N_CTX) as peer:
        with clients_of("http", peer.address) as clients:
            clients.ask(ASK)
        return OneSide(memory_mb(peer.pid))


@contextmanager
def alone(lab: Lab) -> Iterator[Take]:
    """Look at a daemon whose worker has no model."""

    def take(_: int) -> Reading:
        if not lab.has("inferd"):
            return Reading({})
        with running_daemon(ALONE, surfaces.V2.socket) as daemon:
            details = of_daemon(daemon, FREE_ASK)
        return Reading({"inferd": details["daemon"]}, details)

    yield take


def of_daemon(daemon: RunningDaemon, ask: Ask) -> dict[str, float]:
    """Give the megabytes of the daemon's processes after an answer."""
    with clients_of("inferd", str(daemon.directory)) as clients:
        clients.ask(ask)
    return {
        "daemon": memory_mb(daemon.pid),
        "workers": sum(map(memory_mb, daemon.worker_pids)),
    }


NO_RAW: Final = {"raw": "llama.cpp's benchmarks serve nobody"}
RSS: Final = Measure(
    key="rss_mb",
    title="memory of all processes, with the model",
    unit="MB",
    is_more_better=False,
    open=serving,
    reasons=NO_RAW,
)
RSS_ALONE: Final = Measure(
    key="rss_mb",
    title="memory of the daemon's process, no model",
    unit="MB",
    is_more_better=False,
    open=alone,
    goals=(Goal("inferd", at_most=45.0),),
    reasons={**NO_RAW, "peer": "llama-server has no process without the model"},
)
