"""One answer to one client: tokens per second after the first."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Final

from bench.figures import Goal, Reading
from bench.lab import Lab, Measure, OneSide, Take, reading
from bench.load.clients import Clients
from bench.load.scene import Ask
from bench.peers.raw import bench_rate
from bench.prompts import story
from bench.sides import chat_sides
from bench.streams import decode_rate, first_token_s

N_CTX: Final = 1024


@contextmanager
def single_stream(lab: Lab) -> Iterator[Take]:
    """Have every side write the same story."""
    seeds = count()
    n_tokens = lab.sizes.stream_tokens
    with chat_sides(lab, n_slots=1, n_ctx=N_CTX, with_server_py=True) as sides:

        def take(number: int) -> Reading:
            ask = Ask(turns=[("user", story(next(seeds)))], max_tokens=n_tokens)
            works: dict[str, Callable[[], OneSide]] = {
                name: partial(write, each, ask) for name, each in sides.items()
            }
            if lab.has("raw"):
                works["raw"] = partial(write_raw, lab)
            return reading(number, works)

        take(0)
        yield take


def write(clients: Clients, ask: Ask) -> OneSide:
    """Have a server write."""
    answer = clients.ask(ask)
    return OneSide(decode_rate(answer), {"first_token_ms": first_token_s(answer) * 1e3})


def write_raw(lab: Lab) -> OneSide:
    """Have llama.cpp alone write as much."""
    return OneSide(bench_rate(lab, n_tokens=lab.sizes.stream_tokens))


SINGLE_STREAM: Final = Measure(
    key="single_stream",
    title="one stream",
    unit="tokens/s",
    is_more_better=True,
    open=single_stream,
    goals=(
        Goal("ratio_raw", at_least=0.97),
        Goal("ratio_peer", at_least=1.08, or_raw=0.97),
    ),
)
