"""The same answers through the client library, and read from the daemon's socket.

The value of ``inferd`` is that of a program with ``inferd.client``, which gets each text as
it comes; ``socket`` reads bytes, and looks at them when all have come.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count, islice
from typing import Final

from bench.figures import Goal, Reading
from bench.lab import Lab, Measure, Take, reading
from bench.load.clients import clients_of
from bench.load.library import KIND
from bench.measures.concurrent import stories
from bench.measures.through_bridge import N_CTX, N_STREAMS, SOCKET, write
from bench.quiet import wait_until_idle
from bench.sides import our_daemon


@contextmanager
def streams(lab: Lab, *, n_streams: int) -> Iterator[Take]:
    """Have both write so many stories at once, no two alike."""
    seeds = count()
    n_tokens = (
        lab.sizes.stream_tokens if n_streams == 1 else lab.sizes.concurrent_tokens
    )
    with (
        our_daemon(lab, n_slots=n_streams, n_ctx=N_CTX) as daemon,
        clients_of(KIND, str(daemon.directory)) as library,
        clients_of("inferd", str(daemon.directory)) as at_socket,
    ):
        if lab.is_patient:
            wait_until_idle()
        clients = {"inferd": library, SOCKET: at_socket}

        def take(number: int) -> Reading:
            works = {
                name: partial(write, each, stories(islice(seeds, n_streams), n_tokens))
                for name, each in clients.items()
            }
            return reading(number, works)

        take(0)
        yield take


def _measure(key: str, title: str, n_streams: int) -> Measure:
    return Measure(
        key=key,
        title=title,
        unit="tokens/s",
        is_more_better=True,
        open=partial(streams, n_streams=n_streams),
        goals=(Goal(f"ratio_{SOCKET}", at_least=0.98),),
        reasons={"peer": "has no client library", "raw": "has no server"},
    )


THROUGH_CLIENT: Final = (
    _measure("client_1", "one stream through the client library", 1),
    _measure("client_8", f"{N_STREAMS} streams through one client at once", N_STREAMS),
)
