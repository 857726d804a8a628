"""The same answers of a remote engine through the daemon, and asked for directly.

The remote is a bridge before a daemon with a scripted backend, which writes a token of each
stream at fixed times: what differs is the way. The value of ``inferd`` is that of the daemon
that asks the bridge; ``remote`` is the bridge itself.
"""

import json
import statistics
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Final

from bench.bridge import running_bridge
from bench.daemon import running_daemon
from bench.figures import Goal, Reading
from bench.lab import Lab, Measure, Take, in_turns, reading
from bench.load.clients import Clients, clients_of
from bench.load.scene import Ask
from bench.measures.through_bridge import write
from bench.quiet import wait_until_idle
from bench.streams import first_token_s
from inferd import surfaces

REMOTE: Final = "remote"
N_STREAMS: Final = 32
TOKEN_DELAY_MS: Final = 20
"""Of each stream: 50 tokens a second, as a server with an accelerator gives many users."""
FIRST_TOKENS: Final = 20
"""Answers of a round whose first token is timed, on each side."""
UNDER_WAY: Final = 8
"""Pieces of the first stream after which another request is sent beside all of them."""
BESIDE_TOKENS: Final = 4 * UNDER_WAY
"""Tokens of a stream that another begins beside."""
WAIT: Final = "first_token_ms"


def behind(n_active: int, n_tokens: int, delay_ms: int) -> str:
    """Write the configuration of the daemon behind the bridge."""
    return (
        f"[admission]\nmax_active = {n_active}\n"
        f'[[backend]]\nname = "chat"\nkind = "mock"\ntoken_delay_ms = {delay_ms}\n'
        f"tokens = {json.dumps(['a '] * n_tokens)}\n"
    )


def in_front(n_active: int, address: str) -> str:
    """Write the configuration of the daemon that asks the bridge."""
    return (
        f"[admission]\nmax_active = {n_active}\n"
        '[[backend]]\nname = "far"\nkind = "inferd"\nmodel = "chat"\n'
        f'base_url = "http://{address}"\nroute_unnamed = true\n'
    )


@contextmanager
def sides(lab: Lab, *, n_streams: int) -> Iterator[Mapping[str, Clients]]:
    """Run the remote, and the daemon that asks it, while inside."""
    n_active = n_streams + 1
    with ExitStack() as stack:
        tables = behind(n_active, lab.sizes.stream_tokens, TOKEN_DELAY_MS)
        lab.note_text(tables)
        far = stack.enter_context(running_daemon(tables, surfaces.V2.socket))
        bridge = stack.enter_context(running_bridge(far))
        clients = {REMOTE: stack.enter_context(clients_of("bridge", bridge.address))}
        if lab.has("inferd"):
            tables = in_front(n_active, bridge.address)
            lab.note_text(tables)
            near = stack.enter_context(running_daemon(tables, surfaces.V2.socket))
            clients["inferd"] = stack.enter_context(
                clients_of("inferd", str(near.directory))
            )
        if lab.is_patient:
            wait_until_idle()
        yield clients


@contextmanager
def streams(lab: Lab, *, n_streams: int) -> Iterator[Take]:
    """Have both write so many answers at once."""
    asks = [Ask(turns=[("user", "go on")], max_tokens=lab.sizes.stream_tokens)]
    with sides(lab, n_streams=n_streams) as clients:

        def take(number: int) -> Reading:
            works = {
                name: partial(write, each, asks * n_streams)
                for name, each in clients.items()
            }
            return reading(number, works)

        take(0)
        yield take


@contextmanager
def first_tokens(lab: Lab, *, n_streams: int, n_beside: int = 0) -> Iterator[Take]:
    """Time the first token of answers that begin at once, or beside running ones."""
    turns = [("user", "go on")]
    running = Ask(turns=turns, max_tokens=BESIDE_TOKENS)
    after = UNDER_WAY if n_beside else 0
    timed = Ask(turns=turns, max_tokens=2, after_pieces=after)
    n_timed = n_streams - n_beside
    asks = [*[running] * n_beside, *[timed] * n_timed]
    with sides(lab, n_streams=n_streams) as clients:

        def take(number: int) -> Reading:
            waits: dict[str, list[float]] = {name: [] for name in clients}
            for turn in range(max(1, FIRST_TOKENS // n_timed)):
                works = {
                    name: partial(_first_ms, each, asks, n_beside)
                    for name, each in clients.items()
                }
                for name, ms in in_turns(number + turn, works).items():
                    waits[name] += ms
            medians = {name: statistics.median(each) for name, each in waits.items()}
            later = medians.get("inferd", medians[REMOTE]) - medians[REMOTE]
            return Reading(
                {"inferd": later},
                {name: {WAIT: value} for name, value in medians.items()},
            )

        take(0)
        yield take


def _first_ms(clients: Clients, asks: list[Ask], n_beside: int) -> list[float]:
    return [first_token_s(each) * 1e3 for each in clients.play(asks)[n_beside:]]


_ABSENT: Final = {
    "peer": "the remote is a scripted backend behind a bridge",
    "raw": "has no server",
}


def _stream_measure(key: str, title: str, n_streams: int) -> Measure:
    return Measure(
        key=key,
        title=title,
        unit="tokens/s",
        is_more_better=True,
        open=partial(streams, n_streams=n_streams),
        goals=(Goal(f"ratio_{REMOTE}", at_least=0.97),),
        reasons=_ABSENT,
    )


def _first_measure(key: str, title: str, n_streams: int, n_beside: int = 0) -> Measure:
    return Measure(
        key=key,
        title=title,
        unit="ms",
        is_more_better=False,
        open=partial(first_tokens, n_streams=n_streams, n_beside=n_beside),
        goals=(Goal("inferd", at_most=5.0),),
        reasons=_ABSENT,
        also={WAIT: "first token"},
    )


THROUGH_REMOTE: Final = (
    _stream_measure("remote_1", "one stream of a remote, through the daemon", 1),
    _stream_measure("remote_32", f"{N_STREAMS} streams of a remote at once", N_STREAMS),
    _first_measure("remote_first_token", "first token, later than of the remote", 1),
    _first_measure(
        "remote_first_token_32",
        f"first token of {N_STREAMS} at once, later than of the remote",
        N_STREAMS,
    ),
    _first_measure(
        "remote_first_token_beside",
        f"first token beside {N_STREAMS - 1} streams, later than of the remote",
        N_STREAMS,
        N_STREAMS - 1,
    ),
)
