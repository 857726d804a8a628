"""A loaded model: its weights and its vocabulary."""

import ctypes
import math
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from inferd.choices import Use
from inferd.config import LlamaCppSettings
from inferd.wire.responses import Alternative, Logprob
from inferd.worker.backend import LoadError
from inferd.worker.llama.files import ModelFile
from inferd.worker.llama.library import llama
from inferd.worker.llama.opening import Extent, open_model

_TEXT_BYTES = 256
RANK_POOLING: Final = 4
"""``LLAMA_POOLING_TYPE_RANK``: a score instead of a vector."""
_VECTOR_POOLINGS = range(1, 4)
_RENDER_SPECIAL = False
SECOND_SEGMENT_KEY: Final = "inferd.second_segment_offset"
"""Where in its token table a file has the tokens of the second segment."""


class Model:
    """Weights and vocabulary.

    Args:
        file: a GGUF file.
        settings: layers on the accelerator, and what the file itself does not say.
        alive: called now and then while it loads.
        extent: how much of it.

    Raises:
        LoadError: the library refused the file; its log, on stderr, says why. Or its
            pooling does not give what it is to serve.

    Ownership:
        Lives as long as its process, unless it is closed.
    """

    def __init__(
        self,
        file: ModelFile,
        settings: LlamaCppSettings,
        alive: Callable[[], None],
        extent: Extent = "whole",
    ) -> None:
        opened = open_model(file, settings.n_gpu_layers, alive, extent)
        self.handle, self.n_left_texts, self._progress = opened
        self.vocab = llama.llama_model_get_vocab(self.handle)
        self.n_vocab: int = llama.llama_vocab_n_tokens(self.vocab)
        self.n_ctx_train: int = llama.llama_model_n_ctx_train(self.handle)
        self.n_bytes: int = llama.llama_model_size(self.handle)
        self.n_embd: int = llama.llama_model_n_embd_out(self.handle)
        self.architecture = self.metadata("general.architecture")
        self.name = self.metadata("general.name")
        self.cache_types = (settings.cache_type_k, settings.cache_type_v)
        self.pooling = self._pooling(settings)
        self.use: Use = settings.serves or self._use()
        self._refuse_pooling(file.path)
        self._pieces: dict[int, bytes] = {}
        self._kept: set[int] = set()

    def close(self) -> None:
        """Free it; its contexts are gone already."""
        llama.llama_model_free(self.handle)

    def _pooling(self, settings: LlamaCppSettings) -> int:
        """Find how embeddings of tokens become one: as configured, else by the file."""
        if settings.embed_pooling is not None:
            return settings.embed_pooling
        if settings.serves == "rerank":
            return RANK_POOLING
        return int(self.metadata(f"{self.architecture}.pooling_type") or 0)

    def _use(self) -> Use:
        """Find what the model is for: pooling makes one vector, or a score, of a text."""
        if self.pooling == RANK_POOLING:
            return "rerank"
        is_causal = self.metadata(f"{self.architecture}.attention.causal") != "false"
        return "generate" if is_causal and not self.pooling else "embed"

    def _refuse_pooling(self, path: Path) -> None:
        """Refuse a pooling that gives something else than what is served.

        llama.cpp would give numbers all the same, some of them from beyond its results.
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
        """Numbers that pooling gives of a text."""
        if self.use == "rerank":
            return int(llama.llama_model_n_cls_out(self.handle))
        return self.n_embd

    @cached_property
    def end_tokens(self) -> tuple[int, ...]:
        """All tokens that end a turn."""
        return tuple(filter(self.is_end, range(self.n_vocab)))

    def recommended(self, option: str) -> float | None:
        """Look up a sampling option that the model's makers recommend in its file."""
        try:
            value = float(self.metadata(f"general.sampling.{option}"))
        except ValueError:
            return None
        return value if math.isfinite(value) else None

    @property
    def is_recurrent(self) -> bool:
        """Whether it keeps a state that no token can be taken out of again."""
        is_hybrid = llama.llama_model_is_hybrid(self.handle)
        return bool(is_hybrid or llama.llama_model_is_recurrent(self.handle))

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
            name: self.text(token).decode("utf-8", "replace") if token >= 0 else ""
            for name, token in ids.items()
        }

    def text(self, token: int) -> bytes:
        """Give a token's text, as the vocabulary has it."""
        return bytes(llama.llama_vocab_get_text(self.vocab, token))

    def tokenize(self, text: str, *, parses_special: bool = True) -> list[int]:
        """Cut a text into tokens.

        The beginning-of-text token is added where the model wants one and the template
        has not written it.

        Args:
            text: a rendered prompt, or what a client wrote.
            parses_special: whether markers in it become special tokens.
        """
        bos = self.special_tokens()["bos_token"]
        has_bos = bool(bos) and parses_special and text.startswith(bos)
        return self.cut(text, adds_special=not has_bos, parses_special=parses_special)

    @cached_property
    def begin(self) -> list[int]:
        """The token that a text begins with, if there is one."""
        has_one = llama.llama_vocab_get_add_bos(self.vocab)
        return [llama.llama_vocab_bos(self.vocab)] if has_one else []

    @cached_property
    def end(self) -> list[int]:
        """The token that a text ends with, if there is one."""
        has_one = llama.llama_vocab_get_add_eos(self.vocab)
        return [llama.llama_vocab_eos(self.vocab)] if has_one else []

    def pair(self, query: str, document: str) -> list[int]:
        """Cut a query and a document into the tokens that a cross-encoder reads.

        llama.cpp knows one segment alone. Where the file brings its token table twice,
        the second time for the second segment, the document is read with that.
        """
        vocab = self.vocab
        first, second = (
            self.cut(text, adds_special=False, parses_special=False)
            for text in (query, document)
        )
        sep = llama.llama_vocab_get_add_sep(vocab) * [llama.llama_vocab_sep(vocab)]
        offset = self._second_segment
        tail = [token + offset for token in (*second, *(self.end or sep))]
        return [*self.begin, *first, *self.end, *sep, *tail]

    @cached_property
    def _second_segment(self) -> int:
        offset = int(self.metadata(SECOND_SEGMENT_KEY) or 0)
        return offset if 0 < 2 * offset <= self.n_vocab else 0

    def cut(self, text: str, *, adds_special: bool, parses_special: bool) -> list[int]:
        """Cut a text into tokens, just as it stands."""
        vocab, data = self.vocab, text.encode()
        room = len(data) + 2
        while True:
            tokens = (llama.llama_token * room)()
            n_tokens = llama.llama_tokenize(
                vocab, data, len(data), tokens, room, adds_special, parses_special
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

    def keep(self, markers: Iterable[str]) -> None:
        """Have ``piece`` give the text of those control tokens that these are made of."""
        for marker in markers:
            for token in self.cut(marker, adds_special=False, parses_special=True):
                if llama.llama_vocab_is_control(self.vocab, token):
                    self._pieces[token] = self.text(token)
                    self._kept.add(token)

    @property
    def kept(self) -> frozenset[bytes]:
        """Texts of the control tokens that ``piece`` gives all the same."""
        return frozenset(self._pieces[token] for token in self._kept)

    def logprob(
        self, token: int, known: npt.NDArray[np.float32], n_alternatives: int
    ) -> Logprob:
        """Tell how likely a token was, and which were the likeliest.

        Args:
            token: that was chosen.
            known: log probabilities, ``(n_vocab,)``.
            n_alternatives: at most the vocabulary.
        """
        best = np.argpartition(known, -n_alternatives)[-n_alternatives:]
        best = best[np.argsort(-known[best])]
        chosen = self._alternative(token, known)
        return Logprob(
            token=chosen.token,
            id=chosen.id,
            bytes=chosen.bytes,
            logprob=chosen.logprob,
            top_logprobs=[self._alternative(int(each), known) for each in best],
        )

    def _alternative(self, token: int, known: npt.NDArray[np.float32]) -> Alternative:
        piece = self.piece(token)
        return Alternative(
            token=piece.decode("utf-8", "replace"),
            id=token,
            bytes=list(piece),
            logprob=float(known[token]),
        )
