"""Chunks of media: tokens, or embeddings that replace tokens."""

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Chunk", "ChunkList", "MediaChunk", "MropeGrid", "Positions", "Vectors"]

Vectors = npt.NDArray[np.float32]
Positions = npt.NDArray[np.int32]


class ChunkList:
    """libmtmd's list of chunks; freed with the last chunk that refers to it."""

    def __init__(self, mtmd: ModuleType) -> None:
        self._mtmd = mtmd
        self.handle = mtmd.mtmd_input_chunks_init()
        weakref.finalize(self, mtmd.mtmd_input_chunks_free, self.handle)

    def __iter__(self) -> Iterator[int]:
        for index in range(self._mtmd.mtmd_input_chunks_size(self.handle)):
            yield self._mtmd.mtmd_input_chunks_get(self.handle, index)


class MropeGrid(NamedTuple):
    """Positions of four numbers (M-RoPE): time, row, column, and one more."""

    base: Positions
    """``(4, n_tokens)``, for a chunk at position 0."""
    slope: Positions
    """Increase of each number for each position by which the chunk begins later."""
    n_positions: int
    """Positions that the chunk takes up."""


@dataclass(eq=False)
class MediaChunk:
    """A chunk of media that is decoded as embeddings instead of tokens."""

    n_tokens: int
    """Rows of the KV cache that it takes up."""
    is_atomic: bool
    """Whether it must be decoded in one step."""
    is_causal: bool = True
    """Whether its attention is causal; otherwise all its rows attend to one another."""
    grid: MropeGrid | None = None
    """Positions of its rows, if they are not consecutive."""
    source: tuple[int, ChunkList] | None = field(default=None, repr=False)
    """libmtmd's chunk and the list that owns it, until it is encoded."""
    name: str = ""
    """Name of the attachment, for messages to the client."""
    vectors: Vectors | None = None
    """Embeddings ``(n_tokens, n_embd)``, once they are computed."""
    failure: str = ""
    """Why encoding failed; empty if it did not."""

    @property
    def n_positions(self) -> int:
        """Positions that it takes up: with a grid, fewer than ``n_tokens``."""
        return self.n_tokens if self.grid is None else self.grid.n_positions

    def positions(self, at: int) -> Positions:
        """Return the positions of its rows, ``(1 or 4, n_tokens)``, if it begins at ``at``."""
        if self.grid is not None:
            return self.grid.base + at * self.grid.slope
        return np.arange(at, at + self.n_tokens, dtype=np.int32)[np.newaxis]


Chunk = list[int] | MediaChunk
"""Text tokens, or embeddings in their place."""
