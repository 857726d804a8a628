"""A long prompt comes in while an answer is written: the answer's longest silence."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any, Final

from bench.figures import Goal, Reading
from bench.lab import Lab, Measure, OneSide, Take, reading
from bench.load.clients import Clients
from bench.load.scene import Answer, Ask
from bench.prompts import Lengths, story
from bench.sides import chat_sides, lengths
from bench.streams import prefill_rate, rate_between, worst_gap_s

N_SLOTS: Final = 2
STREAM_TOKENS: Final = 3000
"""More than are written while the prompt is read."""
UNDER_WAY: Final = 16
"""Pieces after which the stream counts as running."""
ANSWER_TOKENS: Final = 2


@contextmanager
def stall(lab: Lab) -> Iterator[Take]:
    """Send every side a long prompt in the middle of an answer."""
    seeds = count(1)
    n_ctx = lab.sizes.long_prompt + STREAM_TOKENS + 512
    with chat_sides(lab, n_slots=N_SLOTS, n_ctx=n_ctx, with_small_batch=True) as sides:
        known = lengths(sides)

        def take(number: int) -> Reading:
            asks = stream_and_prompt(next(seeds), lab.sizes.long_prompt, known)
            return reading(
                number,
                {name: partial(interrupt, each, asks) for name, each in sides.items()},
            )

        for clients in sides.values():
            clients.ask(Ask(turns=[("user", story(0))], max_tokens=UNDER_WAY))
        yield take


def stream_and_prompt(seed: int, n_tokens: int, known: Lengths) -> list[Ask]:
    """Ask for a stream and, once it runs, for the answer to a long prompt."""
    return [
        Ask(turns=[("user", story(seed))], max_tokens=STREAM_TOKENS, hangs_up=True),
        Ask(
            turns=[("user", known.text(n_tokens, seed))],
            max_tokens=ANSWER_TOKENS,
            after_pieces=UNDER_WAY,
        ),
    ]


def interrupt(clients: Clients, asks: Sequence[Ask]) -> OneSide:
    """Have a server do both."""
    stream, long = clients.play(asks)
    return OneSide(gap_ms(stream, long), beside(stream, long))


def gap_ms(stream: Answer, prompt: Answer) -> float:
    """Give the stream's longest silence while the prompt was read, in milliseconds."""
    return worst_gap_s(stream, prompt.sent_at, prompt.times[0]) * 1e3


def beside(stream: Answer, prompt: Answer) -> dict[str, Any]:
    """Give what either cost the other."""
    return {
        "prefill_tokens_per_s": prefill_rate(prompt),
        "stream_tokens_per_s": rate_between(stream, prompt.sent_at, prompt.times[0]),
        "prompt_tokens": prompt.n_prompt,
    }


STALL: Final = Measure(
    key="stall_ms",
    title="longest gap in a stream while 3,000 tokens are read",
    unit="ms",
    is_more_better=False,
    open=stall,
    is_long=True,
    goals=(Goal("ratio_peer", at_most=0.04),),
    reasons={"raw": "llama.cpp's benchmarks have no second stream"},
)
