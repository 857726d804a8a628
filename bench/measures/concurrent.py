"""Several answers at once: their tokens per second together.

Of eight, while all of them run. Of more, with the time their prompts take: the first may
have ended before the last begins.
"""

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count, islice
from typing import Any, Final

from bench.figures import Goal, Reading
from bench.lab import Lab, Measure, OneSide, Take, reading
from bench.load.clients import Clients
from bench.load.scene import Answer, Ask
from bench.peers.raw import batched
from bench.prompts import story
from bench.sides import chat_sides
from bench.streams import first_token_s, together_rate, whole_rate

N_CTX: Final = 512
N_CLIENTS: Final = 8
PROMPT_TOKENS: Final = 48
"""Of raw llama.cpp's prompts, if no server tells how long ours are."""
WARM_UP_TOKENS: Final = 2


@contextmanager
def together(
    lab: Lab,
    *,
    n_clients: int,
    n_tokens: int,
    is_whole: bool = False,
    with_server_py: bool = False,
) -> Iterator[Take]:
    """Have every side write so many stories at once.

    Args:
        lab: what to measure with.
        n_clients: stories at once.
        n_tokens: of each.
        is_whole: whether prompts count for the time, too.
        with_server_py: whether the binding's own server takes part.
    """
    seeds = count()
    with chat_sides(
        lab, n_slots=n_clients, n_ctx=N_CTX, with_server_py=with_server_py
    ) as sides:
        first = stories(islice(seeds, n_clients), WARM_UP_TOKENS)
        warm = [clients.play(first) for clients in sides.values()]
        raw = partial(
            batched,
            lab,
            n_clients=n_clients,
            n_prompt=prompt_tokens(warm) or PROMPT_TOKENS,
            n_tokens=n_tokens,
        )

        def take(number: int) -> Reading:
            asks = stories(islice(seeds, n_clients), n_tokens)
            works: dict[str, Callable[[], OneSide]] = {
                name: partial(write, each, asks, is_whole=is_whole)
                for name, each in sides.items()
            }
            if lab.has("raw"):
                works["raw"] = partial(write_raw, raw, is_whole=is_whole)
            return reading(number, works)

        yield take


def write(clients: Clients, asks: Sequence[Ask], *, is_whole: bool) -> OneSide:
    """Have a server write all of it at once."""
    answers = clients.play(asks)
    rate = whole_rate if is_whole else together_rate
    return OneSide(rate(answers), beside(answers))


def write_raw(work: Callable[[], Mapping[str, Any]], *, is_whole: bool) -> OneSide:
    """Have llama.cpp alone do the same work."""
    told = work()
    return OneSide(raw_rate(told, is_whole=is_whole), told)


def raw_rate(told: Mapping[str, float], *, is_whole: bool) -> float:
    """Give what ``llama-batched-bench`` found, with the time of prompts or without."""
    return told["pl"] * told["tg"] / (told["t"] if is_whole else told["t_tg"])


def stories(seeds: Iterable[int], n_tokens: int) -> list[Ask]:
    """Ask for a story each."""
    return [Ask(turns=[("user", story(seed))], max_tokens=n_tokens) for seed in seeds]


def prompt_tokens(sides: Iterable[Sequence[Answer]]) -> int:
    """Give how long the prompts were, as told by the first side that tells."""
    told = [
        [answer.n_prompt for answer in answers if answer.n_prompt] for answers in sides
    ]
    return next((round(statistics.mean(each)) for each in told if each), 0)


def beside(answers: Sequence[Answer]) -> dict[str, float]:
    """Give what else the clients saw."""
    waits = sorted(map(first_token_s, answers))
    return {
        "whole_tokens_per_s": whole_rate(answers),
        "median_first_token_ms": statistics.median(waits) * 1e3,
        "last_first_token_ms": waits[-1] * 1e3,
    }


@contextmanager
def eight(lab: Lab) -> Iterator[Take]:
    """Have every side write eight stories at once."""
    with together(
        lab,
        n_clients=N_CLIENTS,
        n_tokens=lab.sizes.concurrent_tokens,
        with_server_py=True,
    ) as take:
        yield take


CONCURRENT: Final = Measure(
    key="concurrent_8",
    title="8 streams at once",
    unit="tokens/s",
    is_more_better=True,
    open=eight,
    goals=(
        Goal("ratio_raw", at_least=0.95),
        Goal("ratio_peer", at_least=1.08, or_raw=0.95),
    ),
)
