"""What more of it costs: more clients at once, and longer prompts."""

from collections.abc import Mapping
from functools import partial
from typing import Final

from bench.lab import Lab, Measure
from bench.measures.cold_prefill import prefill
from bench.measures.concurrent import together

AXES: Final = {"clients": "clients at once", "prompt_tokens": "tokens of the prompt"}


def growth(lab: Lab) -> Mapping[str, Mapping[int, Measure]]:
    """Give the measures of each axis, by their place on it."""
    return {
        "clients": {
            n_clients: Measure(
                key=f"clients_{n_clients}",
                title=f"{n_clients} streams at once",
                unit="tokens/s",
                is_more_better=True,
                open=partial(
                    together,
                    n_clients=n_clients,
                    n_tokens=lab.sizes.client_tokens,
                    is_whole=True,
                ),
            )
            for n_clients in lab.sizes.client_counts
        },
        "prompt_tokens": {
            n_tokens: Measure(
                key=f"prompt_{n_tokens}",
                title=f"reading {n_tokens} new tokens",
                unit="tokens/s",
                is_more_better=True,
                open=partial(prefill, n_tokens=n_tokens),
            )
            for n_tokens in lab.sizes.prompt_lengths
        },
    }
