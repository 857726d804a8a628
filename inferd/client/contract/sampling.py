"""Parameters for the choice of tokens, and their ranges."""

import math
from dataclasses import dataclass
from typing import Final

TEMPERATURE_MAX: Final = 2.0
TOP_K_MIN: Final = 1
TOP_K_MAX: Final = 100
PENALTY_MAX: Final = 2.0
SEED_MAX: Final = 2**32 - 2
"""The protocol's largest seed."""


@dataclass
class SamplingParams:
    """Parameters for the choice of the next token; ``None`` stands for the model's own."""

    temperature: float | None = None
    """0 to 2; 0 always takes the most likely token."""
    top_k: int | None = None
    """1 to 100: keep this many of the most likely tokens."""
    top_p: float | None = None
    """Above 0, up to 1: keep the most likely tokens of this total probability."""
    seed: int = 0
    """0 for a random one; else up to 4294967294."""
    repetition_penalty: float | None = None
    """0 to 2: divides the score of recent tokens; 0 and 1 for none."""

    def is_valid(self) -> bool:
        """Tell whether all values are in their ranges."""
        return (
            _is_within(self.temperature, 0, TEMPERATURE_MAX)
            and _is_within(self.top_k, TOP_K_MIN, TOP_K_MAX)
            and self.top_p != 0
            and _is_within(self.top_p, 0, 1)
            and _is_within(self.seed, 0, SEED_MAX)
            and _is_within(self.repetition_penalty, 0, PENALTY_MAX)
        )


def _is_within(value: float | None, low: float, high: float) -> bool:
    return value is None or (math.isfinite(value) and low <= value <= high)
