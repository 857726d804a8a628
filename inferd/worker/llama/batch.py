"""A ``llama_batch`` over arrays that are filled in place."""

import ctypes
from collections.abc import Sequence

import numpy as np

from inferd.worker.llama.library import llama


class Batch:
    """Up to ``capacity`` tokens of any sequences, to be decoded at once."""

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
        """Take all tokens out."""
        self._n = 0
        self.handle.n_tokens = 0

    def add(
        self, tokens: Sequence[int], *, at: int, sequence: int, wants_logits: bool
    ) -> int:
        """Append tokens of one sequence, from position ``at``; give the last one's row."""
        rows = slice(self._n, self._n + len(tokens))
        self._token[rows] = tokens
        self._position[rows] = np.arange(at, at + len(tokens))
        self._sequence[rows] = sequence
        self._wants_logits[rows] = 0
        self._wants_logits[rows.stop - 1] = wants_logits
        self._n = self.handle.n_tokens = rows.stop
        return rows.stop - 1

    def add_whole(self, tokens: Sequence[int], *, sequence: int) -> None:
        """Append all tokens of a sequence, each of which counts for what is pooled."""
        first = self._n
        self.add(tokens, at=0, sequence=sequence, wants_logits=True)
        self._wants_logits[first : self._n] = 1

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
