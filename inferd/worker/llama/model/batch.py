"""``llama_batch`` structs over preallocated arrays."""

import ctypes
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from inferd.worker.llama.library.binding import llama


class Batch:
    """Batch of up to ``capacity`` tokens of any sequences."""

    def __init__(self, capacity: int) -> None:
        self._n = 0
        self._token = np.zeros(capacity, np.int32)
        self._position = np.zeros(capacity, np.int32)
        self._sequence = np.zeros(capacity, np.int32)
        self._n_sequences = np.ones(capacity, np.int32)
        self._wants_logits = np.zeros(capacity, np.int8)
        # llama_seq_id **: each row's list of sequences is one cell of ``_sequence``.
        self._sequences = self._sequence.ctypes.data + 4 * np.arange(
            capacity, dtype=np.uint64
        )
        self.handle = self._as_struct()

    def clear(self) -> None:
        """Remove all tokens."""
        self._n = 0
        self.handle.n_tokens = 0

    def add(
        self, tokens: Sequence[int], *, at: int, sequence: int, n_logits: int
    ) -> int:
        """Append tokens of one sequence from position ``at``; return the first one's row.

        Args:
            tokens: to append.
            at: position of the first token.
            sequence: their sequence.
            n_logits: number of tokens, counted from the last, to output logits for.
        """
        first, end = self._n, self._n + len(tokens)
        rows = slice(first, end)
        self._token[rows] = tokens
        self._position[rows] = np.arange(at, at + len(tokens))
        self._sequence[rows] = sequence
        self._wants_logits[rows] = 0
        self._wants_logits[end - n_logits : end] = 1
        self._n = self.handle.n_tokens = end
        return first

    def advance(self, tokens: Sequence[int]) -> None:
        """Replace the token of each sequence, of which there is one, by the one after it."""
        self._token[: self._n] = tokens
        self._position[: self._n] += 1

    def add_for_pooling(self, tokens: Sequence[int], *, sequence: int) -> None:
        """Append all tokens of a sequence, with output for each of them."""
        self.add(tokens, at=0, sequence=sequence, n_logits=len(tokens))

    def __len__(self) -> int:
        return self._n

    def _as_struct(self) -> ctypes.Structure:
        struct: ctypes.Structure = llama.llama_batch()
        types = dict(llama.llama_batch._fields_)
        for name, array in (
            ("token", self._token),
            ("pos", self._position),
            ("n_seq_id", self._n_sequences),
            ("seq_id", self._sequences),
            ("logits", self._wants_logits),
        ):
            setattr(struct, name, ctypes.cast(array.ctypes.data, types[name]))
        struct.embd = None
        return struct


class VectorBatch(Batch):
    """Batch of up to ``capacity`` embeddings of one sequence, in place of tokens."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.handle.token = None
        self._vectors = np.empty((0, 0), np.float32)
        self._positions = np.empty((0, 0), np.int32)

    def fill(
        self,
        vectors: npt.NDArray[np.float32],
        *,
        positions: npt.NDArray[np.int32],
        sequence: int,
    ) -> None:
        """Replace the contents by these embeddings, without output.

        Args:
            vectors: ``(n_tokens, n_embd)``.
            positions: ``(n, n_tokens)``, with as many numbers per token as the model has
                for embeddings.
            sequence: their sequence.
        """
        self.clear()
        self.add([0] * len(vectors), at=0, sequence=sequence, n_logits=0)
        self._vectors = np.ascontiguousarray(vectors, np.float32)
        self._positions = np.ascontiguousarray(positions, np.int32)
        types = dict(llama.llama_batch._fields_)
        self.handle.embd = ctypes.cast(self._vectors.ctypes.data, types["embd"])
        self.handle.pos = ctypes.cast(self._positions.ctypes.data, types["pos"])
