"""How much of a prompt is read between two tokens of those who are being answered."""

from typing import Final

from inferd.worker.limits import (
    PREFILL_ALONE_S,
    PREFILL_CHUNK_MIN_TOKENS,
    PREFILL_STALL_S,
    PREFILL_TILE_TOKENS,
)

_WEIGHT: Final = 0.5
"""Of the latest batch: the deeper a prompt is read, the longer its tokens take."""
_TELLING_TOKENS: Final = 8
"""Smaller batches take as long as their weights take to be fetched, and tell little."""


class Pace:
    """Sizes chunks so that running answers wait for ``stall_s`` at most.

    Args:
        n_most: tokens that a batch has room for.
        stall_s: seconds that they may take.
    """

    def __init__(self, n_most: int, *, stall_s: float = PREFILL_STALL_S) -> None:
        self._n_most = n_most
        self._stall_s = stall_s
        self._token_s = 0.0

    def observe(self, n_tokens: int, seconds: float) -> None:
        """Note how long a batch took."""
        if n_tokens >= _TELLING_TOKENS:
            took = seconds / n_tokens
            known = self._token_s or took
            self._token_s = known + _WEIGHT * (took - known)

    @property
    def chunk(self) -> int:
        """Tokens of prompts that a batch may have beside running answers."""
        return self._within(self._stall_s)

    @property
    def chunk_alone(self) -> int:
        """Tokens of prompts that a batch may have where nothing else runs."""
        return self._within(PREFILL_ALONE_S)

    def _within(self, seconds: float) -> int:
        if not self._token_s:
            return PREFILL_CHUNK_MIN_TOKENS
        n_tokens = min(int(seconds / self._token_s), self._n_most)
        if n_tokens > PREFILL_TILE_TOKENS:
            n_tokens -= n_tokens % PREFILL_TILE_TOKENS
        return max(PREFILL_CHUNK_MIN_TOKENS, n_tokens)
