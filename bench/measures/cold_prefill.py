"""A prompt that nobody has seen: its tokens per second until the first of the answer."""

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
from bench.sides import chat_sides, lengths
from bench.streams import first_token_s, prefill_rate

MARGIN_TOKENS: Final = 512
LONGEST: Final = 8000
"""Tokens: what fits into the 8,192 that the embedded model was trained for, beside its
template, an answer and a miscount; llama-server gives no request more than that."""
ANSWER_TOKENS: Final = 2
WARM_UP_TOKENS: Final = 32


@contextmanager
def prefill(lab: Lab, *, n_tokens: int) -> Iterator[Take]:
    """Have every side read a new prompt of about so many tokens."""
    seeds = count(n_tokens)
    n_tokens = min(n_tokens, LONGEST)
    n_ctx = n_tokens + n_tokens // 8 + MARGIN_TOKENS
    with chat_sides(lab, n_slots=1, n_ctx=n_ctx) as sides:
        known = lengths(sides)

        def take(number: int) -> Reading:
            ask = prompt(known.text(n_tokens, next(seeds)))
            works: dict[str, Callable[[], OneSide]] = {
                name: partial(read, each, ask) for name, each in sides.items()
            }
            if lab.has("raw"):
                works["raw"] = partial(read_raw, lab, n_tokens)
            return reading(number, works)

        for clients in sides.values():
            clients.ask(prompt(known.text(WARM_UP_TOKENS, 0)))
        yield take


def read(clients: Clients, ask: Ask) -> OneSide:
    """Have a server read."""
    answer = clients.ask(ask)
    details = {
        "first_token_ms": first_token_s(answer) * 1e3,
        "prompt_tokens": answer.n_prompt,
    }
    return OneSide(prefill_rate(answer), details)


def read_raw(lab: Lab, n_tokens: int) -> OneSide:
    """Have llama.cpp alone read as much."""
    return OneSide(bench_rate(lab, n_prompt=n_tokens))


def prompt(text: str) -> Ask:
    """Ask for a word about a text."""
    return Ask(turns=[("user", text)], max_tokens=ANSWER_TOKENS)


@contextmanager
def long_cold_prompt(lab: Lab) -> Iterator[Take]:
    """Have every side read the same prompt as while another stream runs."""
    with prefill(lab, n_tokens=lab.sizes.long_prompt) as take:
        yield take


COLD_PREFILL: Final = Measure(
    key="cold_prefill",
    title="reading 3,000 new tokens",
    unit="tokens/s",
    is_more_better=True,
    open=long_cold_prompt,
    is_long=True,
    goals=(Goal("ratio_peer", at_least=1.0, or_raw=0.97),),
)
