"""Room to compute in: a llama.cpp context, its results, and how to cut it short."""

import ctypes
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from inferd.choices import CacheType
from inferd.worker.backend import LoadError
from inferd.worker.limits import (
    ENCODE_BATCH_SEQUENCES,
    OUTPUTS_PER_SLOT,
    PREFILL_CHUNK_TOKENS,
)
from inferd.worker.llama.library import llama
from inferd.worker.llama.model import Model

PLAIN: Final[CacheType] = "f16"
_GGML_TYPES: Final = {"f16": llama.GGML_TYPE_F16, "q8_0": llama.GGML_TYPE_Q8_0}
_Q8_0_BLOCK: Final = 32
"""Numbers that share a scale."""


class Context:
    """Room to decode ``n_slots`` sequences of ``n_ctx`` tokens in all.

    Where ``has_own_cells`` each of them has its even share of the cells to itself, and
    those that stand side by side in a batch, by number, are computed together. Else all
    share one KV cache (``kv_unified``), and keeping each within its share is the caller's
    duty. So is asking for no more than ``n_outputs`` rows of results in a batch: all of
    them by default. The one thread that decodes may use it, but for ``interrupt``.

    Args:
        model: whose context it is.
        n_ctx: tokens of all sequences together.
        n_slots: sequences that run at once.
        n_batch: tokens decoded at once, at most.
        n_outputs: of them that give results.
        n_threads: to begin with.
        has_own_cells: whether sequences share none.

    Raises:
        LoadError: there is no memory for it, or the KV cache cannot be of these types.
    """

    def __init__(  # noqa: PLR0913  # what llama.cpp has to know
        self,
        model: Model,
        *,
        n_ctx: int,
        n_slots: int,
        n_batch: int,
        n_threads: int,
        n_outputs: int | None = None,
        has_own_cells: bool = False,
    ) -> None:
        self.n_sequences = n_slots
        self.window: int = llama.llama_model_n_swa(model.handle)
        """Tokens that sliding layers see; 0 where all see all."""
        params = llama.llama_context_default_params()
        params.n_ctx = n_ctx
        params.n_batch = params.n_ubatch = n_batch
        self.n_outputs = params.n_outputs_max = min(n_batch, n_outputs or n_batch)
        params.n_seq_max = self.n_sequences
        self._n_threads = params.n_threads = params.n_threads_batch = n_threads
        params.kv_unified = not has_own_cells
        params.type_k, params.type_v = (_GGML_TYPES[each] for each in model.cache_types)
        params.no_perf = True
        if model.use != "generate":
            params.embeddings, params.pooling_type = True, model.pooling
        self._views: dict[int, npt.NDArray[np.float32]] = {}
        self._interrupt = (ctypes.c_char * 2)()
        params.abort_callback = ctypes.cast(_STRLEN, llama.ggml_abort_callback)
        params.abort_callback_data = ctypes.addressof(self._interrupt)
        self.handle = llama.llama_init_from_model(model.handle, params)
        if not self.handle:
            raise LoadError(_refusal(n_ctx, model.cache_types))
        self._memory = llama.llama_get_memory(self.handle)
        if not self._memory and any(each != PLAIN for each in model.cache_types):
            raise LoadError("the model keeps no KV cache, so its types cannot be set")
        # llama_decode would do, with a line on stderr for each batch.
        self._compute = llama.llama_decode if self._memory else llama.llama_encode

    @classmethod
    def to_write(
        cls, model: Model, *, n_tokens: int, n_slots: int, n_threads: int
    ) -> Self:
        """Make room for answers: so many at once, of so many tokens in all."""
        return cls(
            model,
            n_ctx=n_tokens,
            n_slots=n_slots,
            n_batch=PREFILL_CHUNK_TOKENS,
            n_outputs=n_slots * OUTPUTS_PER_SLOT,
            n_threads=n_threads,
            has_own_cells=True,
        )

    @classmethod
    def to_draft(
        cls, model: Model, *, n_tokens: int, n_slots: int, n_threads: int
    ) -> Self:
        """Make room for guesses: for as many answers, one row of scores for each."""
        return cls(
            model,
            n_ctx=n_tokens,
            n_slots=n_slots,
            n_batch=PREFILL_CHUNK_TOKENS,
            n_outputs=n_slots,
            n_threads=n_threads,
            has_own_cells=True,
        )

    @classmethod
    def to_encode(cls, model: Model, *, n_batch: int, n_threads: int) -> Self:
        """Make room for texts: so many tokens of them at once."""
        return cls(
            model,
            n_ctx=n_batch,
            n_slots=ENCODE_BATCH_SEQUENCES,
            n_batch=n_batch,
            n_threads=n_threads,
        )

    def close(self) -> None:
        """Free it."""
        llama.llama_free(self.handle)

    def decode(self, batch: ctypes.Structure) -> int:
        """Decode a batch; give llama.cpp's code: 0 is well, 2 is interrupted."""
        return int(self._compute(self.handle, batch))

    def decode_together(self, batch: ctypes.Structure) -> int:
        """Decode a batch of one sequence, each of whose places sees all the others."""
        llama.llama_set_causal_attn(self.handle, False)  # noqa: FBT003  # its only one
        try:
            return self.decode(batch)
        finally:
            llama.llama_set_causal_attn(self.handle, True)  # noqa: FBT003

    def logits(self, row: int, n_vocab: int) -> npt.NDArray[np.float32]:
        """View the logits of a row of the last batch: ``(n_vocab,)``, until the next.

        Views are kept by address: what llama.cpp gives is a row of so many numbers,
        though it may move all of them when a batch has more than any before.
        """
        pointer = llama.llama_get_logits_ith(self.handle, row)
        address = ctypes.addressof(pointer.contents)
        if (view := self._views.get(address)) is None:  # made once: it takes 8 us
            view = self._views[address] = np.ctypeslib.as_array(pointer, (n_vocab,))
        return view

    def pooled(self, sequence: int, n_numbers: int) -> npt.NDArray[np.float32]:
        """Copy what the last batch gave for a whole sequence: ``(n_numbers,)``."""
        pointer = llama.llama_get_embeddings_seq(self.handle, sequence)
        return np.ctypeslib.as_array(pointer, (n_numbers,)).copy()

    def wipe(self) -> None:
        """Drop all cells and what was in them."""
        llama.llama_memory_clear(self._memory, True)  # noqa: FBT003  # data as well

    def forget_all(self) -> None:
        """Drop all cells, where there are any: most encoders keep none."""
        if self._memory:
            llama.llama_memory_clear(self._memory, False)  # noqa: FBT003  # cells alone

    def use_threads(self, n_threads: int) -> None:
        """Decode with this many threads from the next batch on."""
        if n_threads != self._n_threads:  # each call writes a line to stderr
            self._n_threads = n_threads
            llama.llama_set_n_threads(self.handle, n_threads, n_threads)

    def interrupt(self) -> None:
        """End the decode under way soon, or the next one at once; any thread may."""
        self._interrupt[0] = b"\x01"

    def allow(self) -> None:
        """Take back an interruption."""
        self._interrupt[0] = b"\x00"

    def forget(self, sequence: int, *, after: int = 0) -> bool:
        """Drop a sequence's cells from position ``after`` on.

        False where they cannot be told apart: a recurrent model has one state, and all
        of it can be dropped or nothing.
        """
        return bool(llama.llama_memory_seq_rm(self._memory, sequence, after, -1))

    # --- sequences that are kept --------------------------------------------------

    def first_position(self, sequence: int) -> int:
        """Tell the first position that all layers still have a cell of."""
        return max(0, int(llama.llama_memory_seq_pos_min(self._memory, sequence)))

    def state_bytes(self, sequence: int) -> int:
        """Tell how large a sequence's state is."""
        return int(llama.llama_state_seq_get_size(self.handle, sequence))

    def save(self, sequence: int) -> npt.NDArray[np.uint8]:
        """Copy a sequence's state out."""
        state = np.empty(self.state_bytes(sequence), np.uint8)
        n_bytes = llama.llama_state_seq_get_data(
            self.handle, _pointer(state), state.nbytes, sequence
        )
        return state[:n_bytes]

    def restore(
        self, sequence: int, state: npt.NDArray[np.uint8], n_tokens: int
    ) -> bool:
        """Copy a state into an empty sequence; false if it is not there whole then."""
        n_bytes = llama.llama_state_seq_set_data(
            self.handle, _pointer(state), state.nbytes, sequence
        )
        last = llama.llama_memory_seq_pos_max(self._memory, sequence)
        return bool(n_bytes == state.nbytes and last == n_tokens - 1)


def _pointer(state: npt.NDArray[np.uint8]) -> object:
    return state.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))


def _refusal(n_ctx: int, cache_types: tuple[CacheType, CacheType]) -> str:
    """Say why there is no context; llama.cpp's log on stderr says it in its words."""
    type_k, type_v = cache_types
    if type_k == type_v == PLAIN:
        return f"no memory for a context of {n_ctx} tokens"
    return (
        f"no context of {n_ctx} tokens with cache_type_k = {type_k} and "
        f"cache_type_v = {type_v}: q8_0 needs attention heads of a multiple of "
        f"{_Q8_0_BLOCK} numbers, and for the values flash attention"
    )


_STRLEN = ctypes.CDLL(None).strlen
"""llama.cpp's abort callback: ``bool (void *)``, asked before each node of the graph.

A callback in Python would take the interpreter's lock some 500 times a decode. The
length of a C string of at most one character is what we want to know: 0 or 1.
"""
