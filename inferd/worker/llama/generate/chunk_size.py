"""Limit how many prompt tokens are decoded between two tokens of running answers."""

from typing import Final

from inferd.limits.worker import (
    PREFILL_AIM_S,
    PREFILL_ALONE_S,
    PREFILL_CHUNK_MIN_TOKENS,
    PREFILL_DOUBLES_TOKENS,
    PREFILL_STALL_S,
    PREFILL_TILE_TOKENS,
)

_WEIGHT: Final = 0.5
"""Weight of the latest batch: the load by other processes changes."""
_MEASURED_TOKENS: Final = 8
"""Smaller batches take as long as loading the weights does, so they are not measured."""


class ChunkSizer:
    """Chooser of prefill chunk sizes, so that running answers wait ``stall_s`` at most.

    A token takes longer the deeper it is in a prompt. What a batch took is expected of the
    next one as well, and more where that is deeper; not less where it is shallower, as the
    growth differs from model to model.

    Args:
        n_most: capacity of a batch in tokens.
        stall_s: seconds that a chunk may take.
    """

    def __init__(self, n_most: int, *, stall_s: float = PREFILL_STALL_S) -> None:
        self._n_most = n_most
        self._stall_s = stall_s
        self._token_s = 0.0
        self._measured_depth = 0
        self.depth = 0
        """Tokens before those of prompts that are decoded next, on average."""
        self.is_awaited = False
        """Whether a request is about to start, for which another has just been paused."""

    def observe(self, n_tokens: int, seconds: float) -> None:
        """Record how long a batch at ``depth`` took."""
        if n_tokens >= _MEASURED_TOKENS:
            took = seconds / n_tokens
            known = self._expected_s or took
            self._token_s = known + _WEIGHT * (took - known)
            self._measured_depth = self.depth

    @property
    def chunk(self) -> int:
        """Prompt tokens that a batch may hold beside running answers."""
        return self._within(self._stall_s)

    @property
    def chunk_alone(self) -> int:
        """Prompt tokens that a batch may hold while no answer is being generated.

        Less than a tile only where a whole one takes longer than any step may.
        """
        if self.is_awaited:
            return self.chunk
        n_tokens = self._within(PREFILL_AIM_S)
        if n_tokens >= PREFILL_TILE_TOKENS:
            return n_tokens
        return min(PREFILL_TILE_TOKENS, self._within(PREFILL_ALONE_S))

    @property
    def _expected_s(self) -> float:
        """Seconds that a token at ``depth`` takes; 0 if none was measured."""
        deeper, measured = max(self.depth, self._measured_depth), self._measured_depth
        growth = (PREFILL_DOUBLES_TOKENS + deeper) / (PREFILL_DOUBLES_TOKENS + measured)
        return self._token_s * growth

    def _within(self, seconds: float) -> int:
        if not self._token_s:
            return PREFILL_CHUNK_MIN_TOKENS
        n_tokens = min(int(seconds / self._expected_s), self._n_most)
        if n_tokens > PREFILL_TILE_TOKENS:
            n_tokens -= n_tokens % PREFILL_TILE_TOKENS
        return max(PREFILL_CHUNK_MIN_TOKENS, n_tokens)
