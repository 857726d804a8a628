"""Parts of media that are read as vectors, not as tokens."""

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Chunks", "Clip", "Grid", "Part", "Positions", "Vectors"]

Vectors = npt.NDArray[np.float32]
Positions = npt.NDArray[np.int32]


class Chunks:
    """The library's list of parts; freed with the last part that is in it."""

    def __init__(self, mtmd: ModuleType) -> None:
        self._mtmd = mtmd
        self.handle = mtmd.mtmd_input_chunks_init()
        weakref.finalize(self, mtmd.mtmd_input_chunks_free, self.handle)

    def __iter__(self) -> Iterator[int]:
        for index in range(self._mtmd.mtmd_input_chunks_size(self.handle)):
            yield self._mtmd.mtmd_input_chunks_get(self.handle, index)


class Grid(NamedTuple):
    """Positions of four numbers each (M-RoPE): time, row, column, and one more."""

    base: Positions
    """``(4, n_tokens)``, for a part that begins at 0."""
    slope: Positions
    """What each grows by if the part begins one later."""
    n_positions: int
    """What stands behind it is so many positions later."""


@dataclass(eq=False)
class Clip:
    """A part of a medium that is read as vectors, not as tokens."""

    n_tokens: int
    """Places that it takes."""
    is_whole: bool
    """Whether it is read at once or not at all."""
    is_causal: bool = True
    """Whether a place sees those before it alone; else all of its own."""
    grid: Grid | None = None
    """Where its places are, if not one behind the other."""
    source: tuple[int, Chunks] | None = field(default=None, repr=False)
    """What it is made of, until its vectors are there: a chunk, and whose that is."""
    name: str = ""
    """Of the medium, for the client."""
    vectors: Vectors | None = None
    """``(n_tokens, n_embd)``, once they are made."""
    failure: str = ""
    """Why they cannot be."""

    @property
    def n_positions(self) -> int:
        """Positions that it takes: fewer than places where these are in a grid."""
        return self.n_tokens if self.grid is None else self.grid.n_positions

    def positions(self, at: int) -> Positions:
        """Give the positions of its places, ``(1 or 4, n_tokens)``, if it begins there."""
        if self.grid is not None:
            return self.grid.base + at * self.grid.slope
        return np.arange(at, at + self.n_tokens, dtype=np.int32)[np.newaxis]


Part = list[int] | Clip
"""Tokens, or what stands in place of some."""
