"""Embeddings, in the present form and in the older one."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta, Raw, Struct

from inferd.bridge.ollama.durations import keep_alive_s
from inferd.bridge.ollama.sampling import Fields, other_names, read_options
from inferd.bridge.ollama.tables import EMBED, EMBEDDINGS
from inferd.bridge.translation.body import read_body
from inferd.bridge.translation.one_frame import OneFrameAnswer
from inferd.bridge.translation.question import Asked, Question
from inferd.limits.protocol import U32_MAX
from inferd.wire.requests import EmbedRequest
from inferd.wire.responses import EmbeddingsFrame

_VECTORS: Final = msgspec.json.Decoder(list[Raw])
_LOADING: Final = ["."]
"""Stands for no texts, which only load the model."""


class EmbedFields(Struct, frozen=True, kw_only=True):
    """The honoured fields of both forms."""

    model: Annotated[str, Meta(min_length=1)]
    options: Fields = {}
    keep_alive: float | str | None = None


class TextsRequest(EmbedFields, frozen=True, kw_only=True):
    """The honoured fields of a request for embeddings."""

    input: str | list[str] = []
    dimensions: Annotated[int, Meta(ge=1, le=U32_MAX)] | None = None


class EmbeddingRequest(EmbedFields, frozen=True, kw_only=True):
    """The honoured fields of a request for one embedding."""

    prompt: str = ""


def ask_embed(body: bytes, asked: Asked) -> Question:
    """Translate a request for the embeddings of texts; without any, its model is loaded.

    Raises:
        BridgeError: it has something that is not served.
    """
    wanted = read_body(body, EMBED, TextsRequest)
    texts = [wanted.input] if isinstance(wanted.input, str) else wanted.input
    if texts == [""]:
        texts = []
    answer = EmbedAnswer(wanted.model, is_empty=not texts)
    return _question(wanted, texts, answer, asked, wanted.dimensions)


def ask_embedding(body: bytes, asked: Asked) -> Question:
    """Translate a request for one embedding; without a prompt, its model is loaded.

    Raises:
        BridgeError: it has something that is not served.
    """
    wanted = read_body(body, EMBEDDINGS, EmbeddingRequest)
    texts = [wanted.prompt] if wanted.prompt else []
    return _question(wanted, texts, EmbeddingAnswer(is_empty=not texts), asked)


def _question(
    wanted: EmbedFields,
    texts: list[str],
    answer: "EmbedAnswer | EmbeddingAnswer",
    asked: Asked,
    dimensions: int | None = None,
) -> Question:
    options = read_options(wanted.options)
    request = EmbedRequest(
        id=asked.request_id,
        model=wanted.model,
        input=texts or _LOADING,
        dimensions=dimensions,
        keep_alive_s=keep_alive_s(wanted.keep_alive),
        min_n_ctx=options.num_ctx,
    )
    return Question(
        request,
        answer,
        field_names={
            "messages": "input",
            "keep_alive_s": "keep_alive",
            "min_n_ctx": "options.num_ctx",
        },
        other_names=other_names(wanted.model),
    )


class _Vectors(OneFrameAnswer[EmbeddingsFrame]):
    """Vectors, or none for a request without texts."""

    def __init__(self, *, is_empty: bool) -> None:
        super().__init__(EmbeddingsFrame)
        self._is_empty = is_empty

    def _vectors(self) -> list[Raw]:
        assert self._frame is not None  # noqa: S101  # the client raises without one
        return [] if self._is_empty else _VECTORS.decode(self._frame.embeddings)


class EmbedAnswer(_Vectors):
    """The vectors of an answer."""

    def __init__(self, model: str, *, is_empty: bool) -> None:
        super().__init__(is_empty=is_empty)
        self._model = model

    def whole(self) -> bytes:
        """Return the vectors."""
        fields = {
            "model": self._model,
            "embeddings": self._vectors(),
            "prompt_eval_count": 0 if self._is_empty else self.n_tokens,
        }
        return msgspec.json.encode(fields)


class EmbeddingAnswer(_Vectors):
    """One vector."""

    def whole(self) -> bytes:
        """Return the vector."""
        vector: object = next(iter(self._vectors()), [])
        return msgspec.json.encode({"embedding": vector})
