"""A llama.cpp context: decoding, results, sequence states, and interruption."""

import ctypes
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from inferd.config.choices import CacheType
from inferd.limits.worker import (
    ENCODE_BATCH_SEQUENCES,
    OUTPUTS_PER_SLOT,
    PREFILL_CHUNK_TOKENS,
)
from inferd.worker.backend import LoadError
from inferd.worker.llama.library.binding import llama
from inferd.worker.llama.model.weights import LlamaModel

DEFAULT_CACHE_TYPE: Final[CacheType] = "f16"
_GGML_TYPES: Final = {"f16": llama.GGML_TYPE_F16, "q8_0": llama.GGML_TYPE_Q8_0}
_Q8_0_BLOCK: Final = 32
"""Numbers per scale."""


class LlamaContext:
    """A ``llama_context`` for ``n_slots`` sequences of ``n_ctx`` tokens in all.

    With ``has_own_cells`` each sequence has an even share of the cells to itself, and
    sequences that are adjacent in a batch, by number, are computed together. Otherwise all
    share one KV cache (``kv_unified``), and the caller must keep each within its share. The
    caller must also ask for no more than ``n_outputs`` output rows per batch. Only the
    decoding thread uses it, except for ``interrupt``.

    Args:
        model: the model.
        n_ctx: tokens of all sequences together.
        n_slots: sequences that run at once.
        n_batch: most tokens per batch.
        n_outputs: most output rows per batch; ``None`` for all tokens.
        n_threads: initial number of threads.
        has_own_cells: whether each sequence has its own cells.

    Raises:
        LoadError: memory is insufficient, or the KV cache cannot have these types.
    """

    def __init__(  # noqa: PLR0913  # llama.cpp's parameters
        self,
        model: LlamaModel,
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
        """Tokens that sliding-window layers attend to; 0 if there are none."""
        params = llama.llama_context_default_params()
        params.n_ctx = n_ctx
        params.n_batch = params.n_ubatch = n_batch
        self.n_outputs = params.n_outputs_max = min(n_batch, n_outputs or n_batch)
        params.n_seq_max = self.n_sequences
        self._n_threads = params.n_threads = params.n_threads_batch = n_threads
        params.kv_unified, params.no_perf = not has_own_cells, True
        params.type_k, params.type_v = (_GGML_TYPES[each] for each in model.cache_types)
        if model.use != "generate":
            params.embeddings, params.pooling_type = True, model.pooling
        self._views: dict[int, npt.NDArray[np.float32]] = {}
        self._rows: dict[int, npt.NDArray[np.float32]] = {}  # of the last batch
        self._interrupt = (ctypes.c_char * 2)()
        params.abort_callback = ctypes.cast(_STRLEN, llama.ggml_abort_callback)
        params.abort_callback_data = ctypes.addressof(self._interrupt)
        self.handle = llama.llama_init_from_model(model.handle, params)
        if not self.handle:
            raise LoadError(_context_error(n_ctx, model.cache_types))
        self._memory = llama.llama_get_memory(self.handle)
        if not self._memory and any(
            each != DEFAULT_CACHE_TYPE for each in model.cache_types
        ):
            raise LoadError("the model keeps no KV cache, so its types cannot be set")
        # llama_decode would work, but logs a line for each batch.
        self._compute = llama.llama_decode if self._memory else llama.llama_encode

    @classmethod
    def for_generation(
        cls, model: LlamaModel, *, n_tokens: int, n_slots: int, n_threads: int
    ) -> Self:
        """Create a context for ``n_slots`` answers of ``n_tokens`` in all."""
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
    def for_drafting(
        cls, model: LlamaModel, *, n_tokens: int, n_slots: int, n_threads: int
    ) -> Self:
        """Create a draft model's context, with one row of logits per answer."""
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
    def for_encoding(cls, model: LlamaModel, *, n_batch: int, n_threads: int) -> Self:
        """Create a context for embedding batches of ``n_batch`` tokens."""
        return cls(
            model,
            n_ctx=n_batch,
            n_slots=ENCODE_BATCH_SEQUENCES,
            n_batch=n_batch,
            n_threads=n_threads,
        )

    def close(self) -> None:
        """Free the context."""
        llama.llama_free(self.handle)

    def decode(self, batch: ctypes.Structure) -> int:
        """Decode a batch; return llama.cpp's code: 0 for success, 2 if interrupted."""
        self._rows.clear()
        return int(self._compute(self.handle, batch))

    def decode_non_causal(self, batch: ctypes.Structure) -> int:
        """Decode a batch of one sequence in which all positions attend to one another."""
        llama.llama_set_causal_attn(self.handle, False)  # noqa: FBT003  # its only one
        try:
            return self.decode(batch)
        finally:
            llama.llama_set_causal_attn(self.handle, True)  # noqa: FBT003

    def logits(self, row: int, n_vocab: int) -> npt.NDArray[np.float32]:
        """View a row of logits of the last batch: ``(n_vocab,)``, valid until the next.

        Views are cached by address. llama.cpp may move its buffer when a batch has more
        outputs than any before.
        """
        if (view := self._rows.get(row)) is not None:
            return view
        address = _logits_address(self.handle, row)
        if (view := self._views.get(address)) is None:  # cached, since it takes 8 us
            pointer = ctypes.cast(address, ctypes.POINTER(ctypes.c_float))
            view = self._views[address] = np.ctypeslib.as_array(pointer, (n_vocab,))
        self._rows[row] = view
        return view

    def pooled(self, sequence: int, n_numbers: int) -> npt.NDArray[np.float32]:
        """Copy the pooled output of a sequence of the last batch: ``(n_numbers,)``."""
        pointer = llama.llama_get_embeddings_seq(self.handle, sequence)
        return np.ctypeslib.as_array(pointer, (n_numbers,)).copy()

    def clear_with_data(self) -> None:
        """Remove all cells and zero their data."""
        llama.llama_memory_clear(self._memory, True)  # noqa: FBT003  # data as well

    def clear_cells(self) -> None:
        """Remove all cells, if the context has any: most encoders have none."""
        if self._memory:
            llama.llama_memory_clear(self._memory, False)  # noqa: FBT003  # cells alone

    def use_threads(self, n_threads: int) -> None:
        """Decode with this many threads from the next batch on."""
        if n_threads != self._n_threads:  # each call logs a line
            self._n_threads = n_threads
            llama.llama_set_n_threads(self.handle, n_threads, n_threads)

    def interrupt(self) -> None:
        """Abort the current decode soon, or the next one at once; any thread may call."""
        self._interrupt[0] = b"\x01"

    def clear_interrupt(self) -> None:
        """Reset the interruption."""
        self._interrupt[0] = b"\x00"

    def remove_cells(self, sequence: int, *, after: int = 0) -> bool:
        """Remove a sequence's cells from position ``after`` on.

        False if that is not possible: a recurrent model's state can only be removed whole.
        """
        return bool(llama.llama_memory_seq_rm(self._memory, sequence, after, -1))

    # --- saved sequences --------------------------------------------------

    def first_position(self, sequence: int) -> int:
        """Return the first position that all layers still hold."""
        return max(0, int(llama.llama_memory_seq_pos_min(self._memory, sequence)))

    def state_bytes(self, sequence: int) -> int:
        """Return the size of a sequence's state."""
        return int(llama.llama_state_seq_get_size(self.handle, sequence))

    def save(self, sequence: int) -> npt.NDArray[np.uint8]:
        """Copy a sequence's state to host memory."""
        state = np.empty(self.state_bytes(sequence), np.uint8)
        n_bytes = llama.llama_state_seq_get_data(
            self.handle, _pointer(state), state.nbytes, sequence
        )
        return state[:n_bytes]

    def restore(
        self, sequence: int, state: npt.NDArray[np.uint8], n_tokens: int
    ) -> bool:
        """Restore a state into an empty sequence; false if it was not restored whole."""
        n_bytes = llama.llama_state_seq_set_data(
            self.handle, _pointer(state), state.nbytes, sequence
        )
        last = llama.llama_memory_seq_pos_max(self._memory, sequence)
        return bool(n_bytes == state.nbytes and last == n_tokens - 1)


# The binding's function of this name makes a pointer object for each call.
_logits_address = llama._lib["llama_get_logits_ith"]
_logits_address.argtypes = [ctypes.c_void_p, ctypes.c_int32]
_logits_address.restype = ctypes.c_void_p


def _pointer(state: npt.NDArray[np.uint8]) -> object:
    return state.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))


def _context_error(n_ctx: int, cache_types: tuple[CacheType, CacheType]) -> str:
    """Explain why the context was not created; llama.cpp's log on stderr has details."""
    type_k, type_v = cache_types
    if type_k == type_v == DEFAULT_CACHE_TYPE:
        return f"no memory for a context of {n_ctx} tokens"
    return (
        f"no context of {n_ctx} tokens with cache_type_k = {type_k} and "
        f"cache_type_v = {type_v}: q8_0 needs attention heads of a multiple of "
        f"{_Q8_0_BLOCK} numbers, and for the values flash attention"
    )


_STRLEN = ctypes.CDLL(None).strlen
"""llama.cpp's abort callback: ``bool (void *)``, called before each node of the graph.

A Python callback would take the interpreter lock some 500 times per decode. ``strlen`` of a
string of at most one character returns the flag, 0 or 1, instead.
"""
