"""Find the likeliest tokens without sorting a whole vocabulary."""

from typing import Final

import numpy as np
import numpy.typing as npt

BLOCK_TOKENS: Final = 64
"""Tokens of which only the likeliest counts at first: the quickest size for vocabularies
of 49,000 to 262,000 tokens."""


def shortlist(
    scores: npt.NDArray[np.float32], n_wanted: int
) -> npt.NDArray[np.intp] | None:
    """Give tokens of which the ``n_wanted`` likeliest are some, in no order.

    What is no number is taken for the likeliest: it is not to be overlooked.

    Args:
        scores: ``(n_vocab,)``.
        n_wanted: at least 1.

    Returns:
        ``None`` where they would not be much fewer than all.
    """
    n_blocks = len(scores) // BLOCK_TOKENS
    if n_blocks <= 2 * n_wanted:
        return None
    n_blocked = n_blocks * BLOCK_TOKENS
    # A block is a column, so that a maximum is taken of whole rows at once.
    tops = scores[:n_blocked].reshape(BLOCK_TOKENS, n_blocks).max(axis=0)
    blocks = np.argpartition(tops, -n_wanted)[-n_wanted:]
    found = blocks + np.arange(0, n_blocked, n_blocks)[:, np.newaxis]
    return np.concatenate([found.ravel(), np.arange(n_blocked, len(scores))])
