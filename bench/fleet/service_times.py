"""The times of one machine, measured at a daemon with a real model."""

import statistics
from collections.abc import Iterator, Sequence
from typing import Final

from bench.fleet.simulation import Service
from bench.lab import Lab
from bench.load.clients import Clients
from bench.load.scene import Answer, Ask
from bench.prompts import numbered
from bench.sides import chat_sides
from bench.streams import decode_rate, first_token_s, together_rate

N_CTX: Final = 2048
SLOTS: Final = 4
"""As the daemon has by default on four cores and more."""
SHORT_WORDS: Final = 100
LONG_WORDS: Final = 700
N_TOKENS: Final = 48
ROUNDS: Final = 3
CACHED_CONVERSATIONS: Final = 32
"""Prompts of 1,500 tokens that a daemon keeps of such a model, in its slots and beside them."""


def measured(lab: Lab) -> Service:
    """Ask a daemon on this machine, and give its times."""
    with chat_sides(lab, n_slots=SLOTS, n_ctx=N_CTX) as sides:
        return of_clients(sides["inferd"])


def of_clients(clients: Clients) -> Service:
    """Give the times of the daemon that clients ask."""
    seeds = iter(range(1000))
    rounds = [_round(clients, seeds) for _ in range(ROUNDS + 1)][1:]  # warm after one
    return fitted(
        short=[each[0] for each in rounds],
        long=[each[1] for each in rounds],
        alone=[each[2] for each in rounds],
        together=[each[3] for each in rounds],
    )


def fitted(
    *,
    short: Sequence[Answer],
    long: Sequence[Answer],
    alone: Sequence[Answer],
    together: Sequence[Sequence[Answer]],
) -> Service:
    """Draw lines through what was measured.

    Args:
        short: first tokens of short prompts, none of which is in the cache.
        long: of long ones.
        alone: answers that had the machine for themselves.
        together: answers that shared its steps, ``SLOTS`` at once.
    """
    first = [statistics.median(map(first_token_s, each)) for each in (short, long)]
    n_prompt = [statistics.median(a.n_prompt for a in each) for each in (short, long)]
    prompt_token_s = (first[1] - first[0]) / (n_prompt[1] - n_prompt[0])
    step_1 = 1 / statistics.median(map(decode_rate, alone))
    step_n = SLOTS / statistics.median(map(together_rate, together))
    each_s = max(0.0, (step_n - step_1) / (SLOTS - 1))
    return Service(
        slots=SLOTS,
        prompt_token_s=prompt_token_s,
        step_s=max(0.0, step_1 - each_s),
        step_each_s=each_s,
        cached_conversations=CACHED_CONVERSATIONS,
        request_s=max(0.0, first[0] - n_prompt[0] * prompt_token_s),
    )


def _round(
    clients: Clients, seeds: Iterator[int]
) -> tuple[Answer, Answer, Answer, Sequence[Answer]]:
    def ask(n_words: int, n_tokens: int) -> Ask:
        text = numbered(n_words, next(seeds))
        return Ask(turns=[("user", text)], max_tokens=n_tokens)

    return (
        clients.ask(ask(SHORT_WORDS, 1)),
        clients.ask(ask(LONG_WORDS, 1)),
        clients.ask(ask(SHORT_WORDS, N_TOKENS)),
        clients.play([ask(SHORT_WORDS, N_TOKENS) for _ in range(SLOTS)]),
    )
