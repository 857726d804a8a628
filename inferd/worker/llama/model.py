"""A loaded model: its weights, its vocabulary, and a context to decode in."""

import ctypes
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from inferd.worker.backend import LoadError
from inferd.worker.llama.library import llama

_TEXT_BYTES = 256
_NO_POOLING = ("", "0")
_PARSE_SPECIAL = True
_RENDER_SPECIAL = False


class Model:
    """Weights and vocabulary.

    Args:
        path: of a GGUF file.
        n_gpu_layers: layers on the accelerator; -1 for all.
        alive: called now and then while it loads.

    Raises:
        LoadError: the library refused the file; its log, on stderr, says why.

    Ownership:
        Lives as long as its process; nothing is freed.
    """

    def __init__(
        self, path: Path, *, n_gpu_layers: int, alive: Callable[[], None]
    ) -> None:
        params = llama.llama_model_default_params()
        params.n_gpu_layers = n_gpu_layers

        def go_on(_progress: float, _: object) -> bool:
            alive()
            return True

        self._progress = llama.llama_progress_callback(go_on)  # kept from the collector
        params.progress_callback = self._progress
        self.handle = llama.llama_model_load_from_file(str(path).encode(), params)
        if not self.handle:
            raise LoadError(f"llama.cpp cannot load {path}")
        self.vocab = llama.llama_model_get_vocab(self.handle)
        self.n_vocab: int = llama.llama_vocab_n_tokens(self.vocab)
        self.n_ctx_train: int = llama.llama_model_n_ctx_train(self.handle)
        self._pieces: dict[int, bytes] = {}

    @property
    def is_generative(self) -> bool:
        """Whether it writes text, rather than embeddings or scores."""
        architecture = self.metadata("general.architecture")
        return (
            self.metadata(f"{architecture}.pooling_type") in _NO_POOLING
            and self.metadata(f"{architecture}.attention.causal") != "false"
        )

    @property
    def n_layers(self) -> int:
        """Layers that can go to an accelerator: the blocks and the output."""
        return int(llama.llama_model_n_layer(self.handle)) + 1

    @property
    def chat_template(self) -> str | None:
        """The chat template that it carries."""
        template = llama.llama_model_chat_template(self.handle, None)
        return template.decode("utf-8", "replace") if template else None

    def metadata(self, key: str) -> str:
        """Look up a value of the file's header as text; empty if it is not there."""
        buffer = ctypes.create_string_buffer(_TEXT_BYTES)
        n_bytes = llama.llama_model_meta_val_str(
            self.handle, key.encode(), buffer, _TEXT_BYTES
        )
        return buffer.value.decode("utf-8", "replace") if n_bytes >= 0 else ""

    def special_tokens(self) -> dict[str, str]:
        """Texts of the special tokens, by the names that chat templates use."""
        ids = {
            "bos_token": llama.llama_vocab_bos(self.vocab),
            "eos_token": llama.llama_vocab_eos(self.vocab),
        }
        return {
            name: llama.llama_vocab_get_text(self.vocab, token).decode(
                "utf-8", "replace"
            )
            if token >= 0
            else ""
            for name, token in ids.items()
        }

    def tokenize(self, text: str) -> list[int]:
        """Cut a rendered prompt into tokens; markers in it become special tokens.

        The beginning-of-text token is added where the model wants one and the template
        has not written it.
        """
        data = text.encode()
        bos = self.special_tokens()["bos_token"]
        add_special = not (bos and text.startswith(bos))
        room = len(data) + 2
        while True:
            tokens = (llama.llama_token * room)()
            n_tokens = llama.llama_tokenize(
                self.vocab, data, len(data), tokens, room, add_special, _PARSE_SPECIAL
            )
            if n_tokens >= 0:
                return list(tokens[:n_tokens])
            room = -n_tokens  # a normaliser made the text longer; it says by how much

    def is_end(self, token: int) -> bool:
        """Whether a token ends the turn."""
        return bool(llama.llama_vocab_is_eog(self.vocab, token))

    def piece(self, token: int) -> bytes:
        """Give a token's bytes; none for control tokens.

        Bounds:
            Each token's bytes are kept once asked for: ``n_vocab`` short strings at most.
        """
        if (known := self._pieces.get(token)) is not None:
            return known
        n_bytes = -_TEXT_BYTES
        while n_bytes < 0:  # too long for the room: it says by how much
            room = -n_bytes
            buffer = ctypes.create_string_buffer(room)
            n_bytes = llama.llama_token_to_piece(
                self.vocab, token, buffer, room, 0, _RENDER_SPECIAL
            )
            self._pieces[token] = buffer.raw[: max(n_bytes, 0)]
        return self._pieces[token]


class Context:
    """Room to decode ``n_slots`` sequences of up to ``n_ctx`` tokens each.

    One KV cache is shared by all of them (``kv_unified``); keeping each within its share
    is the decoder's duty. The one thread that decodes may use it, but for ``interrupt``.

    Raises:
        LoadError: there is no memory for it.
    """

    def __init__(
        self, model: Model, *, n_ctx: int, n_slots: int, n_batch: int, n_threads: int
    ) -> None:
        params = llama.llama_context_default_params()
        params.n_ctx = n_ctx * n_slots
        params.n_batch = params.n_ubatch = n_batch
        params.n_seq_max = n_slots
        params.n_threads = params.n_threads_batch = n_threads
        params.kv_unified = True
        params.no_perf = True
        self._interrupt = (ctypes.c_char * 2)()
        params.abort_callback = ctypes.cast(_STRLEN, llama.ggml_abort_callback)
        params.abort_callback_data = ctypes.addressof(self._interrupt)
        self.handle = llama.llama_init_from_model(model.handle, params)
        if not self.handle:
            raise LoadError(f"no memory for {n_slots} contexts of {n_ctx} tokens")
        self._memory = llama.llama_get_memory(self.handle)

    def decode(self, batch: ctypes.Structure) -> int:
        """Decode a batch; give llama.cpp's code: 0 is well, 2 is interrupted."""
        return int(llama.llama_decode(self.handle, batch))

    def logits(self, row: int, n_vocab: int) -> npt.NDArray[np.float32]:
        """View the logits of a row of the last batch: ``(n_vocab,)``, until the next."""
        pointer = llama.llama_get_logits_ith(self.handle, row)
        return np.ctypeslib.as_array(pointer, (n_vocab,))

    def use_threads(self, n_threads: int) -> None:
        """Decode with this many threads from the next batch on."""
        llama.llama_set_n_threads(self.handle, n_threads, n_threads)

    def interrupt(self) -> None:
        """End the decode under way soon, or the next one at once; any thread may."""
        self._interrupt[0] = b"\x01"

    def allow(self) -> None:
        """Take back an interruption."""
        self._interrupt[0] = b"\x00"

    def forget(self, sequence: int, *, after: int = 0) -> None:
        """Drop a sequence's cells from position ``after`` on."""
        llama.llama_memory_seq_rm(self._memory, sequence, after, -1)


_STRLEN = ctypes.CDLL(None).strlen
"""llama.cpp's abort callback: ``bool (void *)``, asked before each node of the graph.

A callback in Python would take the interpreter's lock some 500 times a decode. The
length of a C string of at most one character is what we want to know: 0 or 1.
"""
