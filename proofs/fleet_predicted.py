"""What the simulation says of the fleet that was measured, before its figures."""

import os
import statistics
from typing import Final

from bench.fleet.simulation import (
    Habits,
    Route,
    Seen,
    Service,
    by_prefix,
    in_turns,
    simulate,
)
from torture.outcome import Context, percentile, rounded

TOKEN_S: Final = 0.005
"""Seconds before each token of the scripted backend."""
N_TOKENS: Final = 3
FOR_S: Final = 60.0
MOST_APART: Final = 0.1
"""By which the shares of later turns in the cache may differ."""


def service_of(first_s: float, turn_s: float) -> Service:
    """Give the times of a member whose processes share the cores with all others.

    Args:
        first_s: until the first token, where one conversation is held at once.
        turn_s: until the end of a turn then.
    """
    cores = os.cpu_count() or 1
    return Service(
        slots=min(cores, 4),  # as by default
        prompt_token_s=0.0,
        step_s=TOKEN_S,
        step_each_s=0.0,
        cached_conversations=10**6,
        request_s=max(0.0, first_s - TOKEN_S),
        end_s=max(0.0, turn_s - first_s - (N_TOKENS - 1) * TOKEN_S),
        cores=cores,
    )


def predict(
    context: Context, service: Service, *, n_at_once: int, n_members: int, n_turns: int
) -> None:
    """Simulate the conversations of ``prefixes`` and ``round_robin``, and compare."""
    ways: dict[str, Route] = {"prefixes": by_prefix(), "round_robin": in_turns()}
    habits = Habits(think_s=0.0, turns=n_turns, prompt_tokens=1, answer_tokens=N_TOKENS)
    for name, route in ways.items():
        seen = simulate(
            n_at_once,
            n_members,
            service,
            habits,
            route,
            for_s=FOR_S,
            seed=context.seed,
        )
        _tell(context, name, seen)


def _tell(context: Context, name: str, seen: Seen) -> None:
    share = round(seen.n_cached / max(1, seen.n_later), 3)
    figures = context.figures
    figures[f"{name}_predicted_stayed"] = share
    firsts = [each + TOKEN_S for each in seen.first_s]
    figures[f"{name}_predicted_first_p50_ms"] = rounded(statistics.median(firsts))
    figures[f"{name}_predicted_first_p99_ms"] = rounded(percentile(firsts, 99))
    per_s = len(firsts) / (FOR_S * 0.9)  # the first tenth does not count
    figures[f"{name}_predicted_turns_per_s"] = round(per_s, 1)
    apart = abs(share - figures[f"{name}_stayed"])
    context.expect(apart <= MOST_APART, f"{name}: {share} was predicted to stay")
