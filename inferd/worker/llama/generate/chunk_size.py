"""Limit how many prompt tokens are decoded between two tokens of running answers."""

from typing import Final

from inferd.limits.worker import (
    PREFILL_ALONE_S,
    PREFILL_CHUNK_MIN_TOKENS,
    PREFILL_STALL_S,
    PREFILL_TILE_TOKENS,
)

_WEIGHT: Final = 0.5
"""Weight of the latest batch: tokens take longer the deeper they are in a prompt."""
_MEASURED_TOKENS: Final = 8
"""Smaller batches take as long as loading the weights does, so they are not measured."""


class ChunkSizer:
    """Chooser of prefill chunk sizes, so that running answers wait ``stall_s`` at most.

    Args:
        n_most: capacity of a batch in tokens.
        stall_s: seconds that a chunk may take.
    """

    def __init__(self, n_most: int, *, stall_s: float = PREFILL_STALL_S) -> None:
        self._n_most = n_most
        self._stall_s = stall_s
        self._token_s = 0.0

    def observe(self, n_tokens: int, seconds: float) -> None:
        """Record how long a batch took."""
        if n_tokens >= _MEASURED_TOKENS:
            took = seconds / n_tokens
            known = self._token_s or took
            self._token_s = known + _WEIGHT * (took - known)

    @property
    def chunk(self) -> int:
        """Prompt tokens that a batch may hold beside running answers."""
        return self._within(self._stall_s)

    @property
    def chunk_alone(self) -> int:
        """Prompt tokens that a batch may hold while no answer is being generated."""
        return self._within(PREFILL_ALONE_S)

    def _within(self, seconds: float) -> int:
        if not self._token_s:
            return PREFILL_CHUNK_MIN_TOKENS
        n_tokens = min(int(seconds / self._token_s), self._n_most)
        if n_tokens > PREFILL_TILE_TOKENS:
            n_tokens -= n_tokens % PREFILL_TILE_TOKENS
        return max(PREFILL_CHUNK_MIN_TOKENS, n_tokens)
