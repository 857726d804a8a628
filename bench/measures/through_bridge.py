"""The same answers through the HTTP bridge, at the daemon's socket, and from llama-server.

The value of ``inferd`` is that of the bridge here; ``socket`` is the daemon's own socket.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count, islice
from typing import Final

from bench.bridge import running_bridge
from bench.figures import Goal, Reading
from bench.lab import Lab, Measure, OneSide, Take, reading
from bench.load.clients import Clients, clients_of
from bench.load.scene import Ask
from bench.measures.concurrent import stories
from bench.prompts import story
from bench.quiet import wait_until_idle
from bench.sides import SAMPLE, check_alike, our_daemon, our_peer
from bench.streams import decode_rate, first_token_s, together_rate

N_CTX: Final = 1024
N_STREAMS: Final = 8
FIRST_TOKENS: Final = 20
"""Answers of a round whose first token is timed, on each side."""
SOCKET: Final = "socket"
WAIT: Final = "first_token_ms"


@contextmanager
def sides(lab: Lab, *, n_slots: int) -> Iterator[Mapping[str, Clients]]:
    """Run the bridge before a daemon, and llama-server, while inside."""
    with ExitStack() as stack:
        clients: dict[str, Clients] = {}
        if lab.has("inferd"):
            daemon = stack.enter_context(our_daemon(lab, n_slots=n_slots, n_ctx=N_CTX))
            bridge = stack.enter_context(running_bridge(daemon))
            clients["inferd"] = stack.enter_context(
                clients_of("bridge", bridge.address)
            )
            clients[SOCKET] = stack.enter_context(
                clients_of("inferd", str(daemon.directory))
            )
        if lab.has("peer"):
            peer = stack.enter_context(our_peer(lab, n_slots=n_slots, n_ctx=N_CTX))
            clients["peer"] = stack.enter_context(clients_of("http", peer.address))
        check_alike({name: side.ask(SAMPLE) for name, side in clients.items()})
        if lab.is_patient:
            wait_until_idle()
        yield clients


@contextmanager
def streams(lab: Lab, *, n_streams: int) -> Iterator[Take]:
    """Have every side write so many stories at once, no two alike."""
    seeds = count()
    n_tokens = (
        lab.sizes.stream_tokens if n_streams == 1 else lab.sizes.concurrent_tokens
    )
    with sides(lab, n_slots=n_streams) as clients:

        def take(number: int) -> Reading:
            return reading(
                number,
                {
                    name: partial(
                        write, each, stories(islice(seeds, n_streams), n_tokens)
                    )
                    for name, each in clients.items()
                },
            )

        take(0)
        yield take


def write(clients: Clients, asks: Sequence[Ask]) -> OneSide:
    """Have a side write all of it."""
    answers = clients.play(asks)
    if len(answers) == 1:
        return OneSide(decode_rate(answers[0]))
    return OneSide(together_rate(answers))


@contextmanager
def first_tokens(lab: Lab) -> Iterator[Take]:
    """Time the first token of a prompt that every side has cached."""
    ask = Ask(turns=[("user", story(0))], max_tokens=2)
    with sides(lab, n_slots=1) as clients:
        works: dict[str, Callable[[], float]] = {
            name: partial(_first_ms, each, ask) for name, each in clients.items()
        }

        def take(_: int) -> Reading:
            waits: dict[str, list[float]] = {name: [] for name in works}
            for _ in range(FIRST_TOKENS):
                for name, work in works.items():
                    waits[name].append(work())
            medians = {name: statistics.median(each) for name, each in waits.items()}
            return Reading(
                {"inferd": medians["inferd"] - medians[SOCKET]}
                if SOCKET in medians
                else {},
                {name: {WAIT: value} for name, value in medians.items()},
            )

        take(0)
        yield take


def _first_ms(clients: Clients, ask: Ask) -> float:
    return first_token_s(clients.ask(ask)) * 1e3


BRIDGE_ONE: Final = Measure(
    key="bridge_1",
    title="one stream through the bridge",
    unit="tokens/s",
    is_more_better=True,
    open=partial(streams, n_streams=1),
    goals=(
        Goal(f"ratio_{SOCKET}", at_least=0.97),
        Goal("ratio_peer", at_least=1.0),
    ),
)
BRIDGE_EIGHT: Final = Measure(
    key="bridge_8",
    title="8 streams through the bridge at once",
    unit="tokens/s",
    is_more_better=True,
    open=partial(streams, n_streams=N_STREAMS),
    goals=(
        Goal(f"ratio_{SOCKET}", at_least=0.97),
        Goal("ratio_peer", at_least=1.05),
    ),
)
BRIDGE_FIRST: Final = Measure(
    key="bridge_first_token",
    title="first token, later through the bridge than at the socket",
    unit="ms",
    is_more_better=False,
    open=first_tokens,
    goals=(Goal("inferd", at_most=3.0),),
    reasons={"peer": "below, as all of it", "raw": "has no socket"},
    also={WAIT: "first token of a cached prompt"},
)
