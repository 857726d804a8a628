"""A loaded llama.cpp model: metadata, tokenisation and token texts."""

import ctypes
import math
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from inferd.config.choices import CacheType, ModelUse
from inferd.config.kinds.llamacpp import LlamaCppSettings
from inferd.models.facts.gguf_facts import RANK_POOLING, use_of
from inferd.wire.responses import Alternative, Logprob
from inferd.worker.backend import LoadError
from inferd.worker.llama.gguf.files import ModelFile
from inferd.worker.llama.library.binding import llama
from inferd.worker.llama.model.load import LoadExtent, open_model

_TEXT_BYTES = 256


class CacheBlock(NamedTuple):
    """How ggml stores numbers of a KV cache."""

    n_numbers: int
    n_bytes: int


CACHE_BLOCKS: Final[dict[CacheType, CacheBlock]] = {
    "f16": CacheBlock(1, 2),
    "q8_0": CacheBlock(32, 34),
}
_VECTOR_POOLINGS = range(1, 4)
_RENDER_SPECIAL = False
SECOND_SEGMENT_KEY: Final = "inferd.second_segment_offset"
"""Metadata key: offset of the second segment's rows in the token embedding table."""


class LlamaModel:
    """A ``llama_model``: weights and vocabulary.

    Args:
        file: a GGUF file.
        settings: layers on accelerators, and values that override the file's.
        alive: called regularly while it loads, as a sign of life.
        extent: the parts to load.

    Raises:
        LoadError: the library refused the file (its log on stderr says why), or its pooling
            does not fit its use.

    Ownership:
        Freed by ``close``, else with the process.
    """

    def __init__(
        self,
        file: ModelFile,
        settings: LlamaCppSettings,
        alive: Callable[[], None],
        extent: LoadExtent = "full",
    ) -> None:
        opened = open_model(file, settings, alive, extent)
        self.handle, self.n_skipped_texts, self._kept = opened
        self.vocab = llama.llama_model_get_vocab(self.handle)
        self.n_vocab: int = llama.llama_vocab_n_tokens(self.vocab)
        self.n_ctx_train: int = llama.llama_model_n_ctx_train(self.handle)
        self.n_bytes: int = llama.llama_model_size(self.handle)
        self.n_embd: int = llama.llama_model_n_embd_out(self.handle)
        self.architecture = self.metadata("general.architecture")
        self.name = self.metadata("general.name")
        self.cache_types = (settings.cache_type_k, settings.cache_type_v)
        self.pooling = self._pooling(settings)
        self.use: ModelUse = settings.serves or self._use()
        self._refuse_pooling(file.path)
        self._pieces: dict[int, bytes] = {}
        self._ends: dict[int, bool] = {}
        self._marker_tokens: set[int] = set()

    def close(self) -> None:
        """Free the model, after its contexts."""
        llama.llama_model_free(self.handle)

    def _pooling(self, settings: LlamaCppSettings) -> int:
        """Return the pooling type: as configured, else by the file."""
        if settings.embed_pooling is not None:
            return settings.embed_pooling
        if settings.serves == "rerank":
            return RANK_POOLING
        return int(self.metadata(f"{self.architecture}.pooling_type") or 0)

    def _use(self) -> ModelUse:
        """Derive the model's use from its pooling and its attention."""
        is_causal = self.metadata(f"{self.architecture}.attention.causal") != "false"
        return use_of(self.pooling, is_causal=is_causal)

    def _refuse_pooling(self, path: Path) -> None:
        """Refuse a pooling that does not fit the model's use.

        llama.cpp would return numbers anyway, some from beyond the end of its results.
        """
        fault = f"it is to {self.use} with pooling {self.pooling}, which gives no"
        if self.use == "embed" and self.pooling not in _VECTOR_POOLINGS:
            right = "1 (mean), 2 (first token) and 3 (last token) do"
            raise LoadError.of_file(path, f"{fault} vectors; embed_pooling {right}")
        if self.use == "rerank" and self.pooling != RANK_POOLING:
            right = f"{RANK_POOLING} does"
            raise LoadError.of_file(path, f"{fault} scores; embed_pooling {right}")

    @property
    def n_pooled(self) -> int:
        """Numbers in the pooled output of a text."""
        if self.use == "rerank":
            return int(llama.llama_model_n_cls_out(self.handle))
        return self.n_embd

    @cached_property
    def end_tokens(self) -> tuple[int, ...]:
        """All end-of-generation tokens."""
        is_end, vocab = llama.llama_vocab_is_eog, self.vocab
        return tuple(each for each in range(self.n_vocab) if is_end(vocab, each))

    def recommended(self, option: str) -> float | None:
        """Look up a sampling option that the model file recommends."""
        try:
            value = float(self.metadata(f"general.sampling.{option}"))
        except ValueError:
            return None
        return value if math.isfinite(value) else None

    @property
    def is_recurrent(self) -> bool:
        """Whether it has a recurrent state, from which no token can be removed."""
        is_hybrid = llama.llama_model_is_hybrid(self.handle)
        return bool(is_hybrid or llama.llama_model_is_recurrent(self.handle))

    @property
    def n_layers(self) -> int:
        """Layers that an accelerator can hold: the blocks and the output layer."""
        return int(llama.llama_model_n_layer(self.handle)) + 1

    @property
    def cache_row_bytes(self) -> int:
        """Bytes of a token in the larger tensor of its first layer's KV cache."""
        n_heads = int(llama.llama_model_n_head(self.handle))
        n_kv_heads = int(llama.llama_model_n_head_kv(self.handle))
        head = int(llama.llama_model_n_embd(self.handle)) // max(1, n_heads)
        lengths = (
            self.metadata(f"{self.architecture}.attention.{name}_length")
            for name in ("key", "value")
        )
        return max(
            n_kv_heads
            * (int(length) if length.isdecimal() else head)
            * kind.n_bytes
            // kind.n_numbers
            for length, kind in zip(
                lengths, (CACHE_BLOCKS[each] for each in self.cache_types), strict=True
            )
        )

    @property
    def chat_template(self) -> str | None:
        """The chat template in the file, if there is one."""
        template = llama.llama_model_chat_template(self.handle, None)
        return template.decode("utf-8", "replace") if template else None

    def metadata(self, key: str) -> str:
        """Look up a metadata value as text; empty if it is missing."""
        buffer = ctypes.create_string_buffer(_TEXT_BYTES)
        n_bytes = llama.llama_model_meta_val_str(
            self.handle, key.encode(), buffer, _TEXT_BYTES
        )
        return buffer.value.decode("utf-8", "replace") if n_bytes >= 0 else ""

    def special_tokens(self) -> dict[str, str]:
        """Return texts of special tokens by the names that chat templates use."""
        ids = {
            "bos_token": llama.llama_vocab_bos(self.vocab),
            "eos_token": llama.llama_vocab_eos(self.vocab),
        }
        return {
            name: self.text(token).decode("utf-8", "replace") if token >= 0 else ""
            for name, token in ids.items()
        }

    def text(self, token: int) -> bytes:
        """Return a token's text as stored in the vocabulary."""
        return bytes(llama.llama_vocab_get_text(self.vocab, token))

    def tokenize(self, text: str, *, parses_special: bool = True) -> list[int]:
        """Tokenise a text.

        The BOS token is added if the model wants one and the text does not begin with it.

        Args:
            text: a rendered prompt, or a client's text.
            parses_special: whether texts of special tokens become these.
        """
        bos = self.special_tokens()["bos_token"]
        has_bos = bool(bos) and parses_special and text.startswith(bos)
        return self.tokenize_raw(
            text, adds_special=not has_bos, parses_special=parses_special
        )

    @cached_property
    def bos_tokens(self) -> list[int]:
        """The BOS token, if the model adds one."""
        has_one = llama.llama_vocab_get_add_bos(self.vocab)
        return [llama.llama_vocab_bos(self.vocab)] if has_one else []

    @cached_property
    def eos_tokens(self) -> list[int]:
        """The EOS token, if the model adds one."""
        has_one = llama.llama_vocab_get_add_eos(self.vocab)
        return [llama.llama_vocab_eos(self.vocab)] if has_one else []

    def tokenize_pair(self, query: str, document: str) -> list[int]:
        """Tokenise a query and a document for a cross-encoder.

        llama.cpp supports only one segment. If the file holds its token embeddings twice,
        the second time for the second segment, the document gets the second ids.
        """
        vocab = self.vocab
        first, second = (
            self.tokenize_raw(text, adds_special=False, parses_special=False)
            for text in (query, document)
        )
        sep = llama.llama_vocab_get_add_sep(vocab) * [llama.llama_vocab_sep(vocab)]
        offset = self._second_segment
        tail = [token + offset for token in (*second, *(self.eos_tokens or sep))]
        return [*self.bos_tokens, *first, *self.eos_tokens, *sep, *tail]

    @cached_property
    def _second_segment(self) -> int:
        offset = int(self.metadata(SECOND_SEGMENT_KEY) or 0)
        return offset if 0 < 2 * offset <= self.n_vocab else 0

    def tokenize_raw(
        self, text: str, *, adds_special: bool, parses_special: bool
    ) -> list[int]:
        """Tokenise a text without looking for its BOS token."""
        vocab, data = self.vocab, text.encode()
        room = len(data) + 2
        while True:
            tokens = (llama.llama_token * room)()
            n_tokens = llama.llama_tokenize(
                vocab, data, len(data), tokens, room, adds_special, parses_special
            )
            if n_tokens >= 0:
                return list(tokens[:n_tokens])
            room = (
                -n_tokens
            )  # normalisation made the text longer; this is the required size

    def is_end(self, token: int) -> bool:
        """Whether a token is an end-of-generation token.

        Bounds:
            Results are cached: one for each token of the vocabulary at most.
        """
        if (known := self._ends.get(token)) is None:
            known = self._ends[token] = bool(
                llama.llama_vocab_is_eog(self.vocab, token)
            )
        return known

    def piece(self, token: int) -> bytes:
        """Return a token's bytes; empty for most control tokens, see ``render_markers``.

        Bounds:
            Results are cached: ``n_vocab`` short strings at most.
        """
        if (logprobs := self._pieces.get(token)) is not None:
            return logprobs
        n_bytes = -_TEXT_BYTES
        while n_bytes < 0:  # buffer too small: this is the required size
            room = -n_bytes
            buffer = ctypes.create_string_buffer(room)
            n_bytes = llama.llama_token_to_piece(
                self.vocab, token, buffer, room, 0, _RENDER_SPECIAL
            )
            self._pieces[token] = buffer.raw[: max(n_bytes, 0)]
        return self._pieces[token]

    def render_markers(self, markers: Iterable[str]) -> None:
        """Make ``piece`` return the texts of the control tokens in these markers."""
        for marker in markers:
            for token in self.tokenize_raw(
                marker, adds_special=False, parses_special=True
            ):
                if llama.llama_vocab_is_control(self.vocab, token):
                    self._pieces[token] = self.text(token)
                    self._marker_tokens.add(token)

    @property
    def marker_texts(self) -> frozenset[bytes]:
        """Texts of the control tokens that ``piece`` renders."""
        return frozenset(self._pieces[token] for token in self._marker_tokens)

    def logprob(
        self, token: int, logprobs: npt.NDArray[np.float32], n_alternatives: int
    ) -> Logprob:
        """Build the log probability entry of a sampled token.

        Args:
            token: the sampled token.
            logprobs: log probabilities, ``(n_vocab,)``.
            n_alternatives: number of likeliest tokens to list.
        """
        best = np.argpartition(logprobs, -n_alternatives)[-n_alternatives:]
        best = best[np.argsort(-logprobs[best])]
        chosen = self._alternative(token, logprobs)
        return Logprob(
            token=chosen.token,
            id=chosen.id,
            bytes=chosen.bytes,
            logprob=chosen.logprob,
            top_logprobs=[self._alternative(int(each), logprobs) for each in best],
        )

    def _alternative(
        self, token: int, logprobs: npt.NDArray[np.float32]
    ) -> Alternative:
        piece = self.piece(token)
        return Alternative(
            token=piece.decode("utf-8", "replace"),
            id=token,
            bytes=list(piece),
            logprob=float(logprobs[token]),
        )
