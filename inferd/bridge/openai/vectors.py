"""Embeddings and reranking."""

import math
import sys
from array import array
from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct

from inferd.bridge.openai.tables import EMBEDDINGS, RERANK
from inferd.bridge.openai.usage import prompt_usage
from inferd.bridge.translation.body import read_body
from inferd.bridge.translation.failures import BridgeError, Reason, invalid
from inferd.bridge.translation.objects import Strict
from inferd.bridge.translation.one_frame import OneFrameAnswer
from inferd.bridge.translation.question import Answer, Asked, Question
from inferd.limits.protocol import U32_MAX
from inferd.wire.requests import EmbedRequest, RerankRequest
from inferd.wire.responses import EmbeddingsFrame, RerankFrame

Tokens = Annotated[int, Meta(ge=1, le=U32_MAX)]
TokenId = Annotated[int, Meta(ge=0, le=U32_MAX)]
_VECTORS: Final = msgspec.json.Decoder(list[Raw])
_NUMBERS: Final = msgspec.json.Decoder(list[float])


# --- embeddings -------------------------------------------------------------------------


class EmbeddingsRequest(Struct, frozen=True, kw_only=True):
    """The honoured fields of a request for embeddings."""

    input: str | list[str | TokenId | list[TokenId]]
    model: str | None = None
    dimensions: Tokens | None = None
    encoding_format: Literal["float", "base64"] = "float"
    task: str | None = None


def ask_embeddings(body: bytes, asked: Asked) -> Question:
    """Translate a request for embeddings.

    Raises:
        BridgeError: it has something that is not served.
    """
    wanted = read_body(body, EMBEDDINGS, EmbeddingsRequest)
    texts, tokens = _read_input(wanted.input)
    request = EmbedRequest(
        id=asked.request_id,
        model=wanted.model,
        input=UNSET if tokens else texts,
        tokens=tokens or None,
        dimensions=wanted.dimensions,
        task=wanted.task,
    )
    is_base64 = wanted.encoding_format == "base64"
    answer = EmbeddingsAnswer(wanted.model, is_base64=is_base64)
    names = {"messages": "input", "tokens": "input"}
    return Question(request, answer, field_names=names)


def _read_input(
    given: str | Sequence[str | int | list[int]],
) -> tuple[list[str], list[list[int]]]:
    """Return texts, or the tokens of texts.

    Raises:
        BridgeError: it has both.
    """
    entries = [given] if isinstance(given, str) else given
    texts = [each for each in entries if isinstance(each, str)]
    ids = [each for each in entries if isinstance(each, int)]
    lists = [each for each in entries if isinstance(each, list)]
    if len(entries) not in {len(texts), len(ids), len(lists)}:
        raise BridgeError(
            Reason.INVALID_REQUEST,
            "input: a text, an array of texts, of tokens, or of arrays of tokens; "
            "these cannot be mixed",
            param="input",
        )
    return texts, [ids] if ids else lists


class EmbeddingsAnswer(OneFrameAnswer[EmbeddingsFrame]):
    """The vectors of an answer."""

    def __init__(self, model: str | None, *, is_base64: bool) -> None:
        super().__init__(EmbeddingsFrame)
        self._model = model
        self._is_base64 = is_base64

    def whole(self) -> bytes:
        """Return the list of vectors."""
        assert self._frame is not None  # noqa: S101  # the client raises without one
        vectors = _VECTORS.decode(self._frame.embeddings)
        return msgspec.json.encode(
            {
                "object": "list",
                "data": [
                    {
                        "object": "embedding",
                        "index": index,
                        "embedding": as_base64(each) if self._is_base64 else each,
                    }
                    for index, each in enumerate(vectors)
                ],
                "model": self._model or self._frame.backend,
                "usage": prompt_usage(self._frame.usage.input_tokens),
            }
        )


def as_base64(vector: Raw) -> str:
    """Encode a vector: base64 of little-endian 32-bit floats."""
    numbers = array("f", _NUMBERS.decode(vector))
    if sys.byteorder == "big":
        numbers.byteswap()
    return b64encode(numbers.tobytes()).decode()


# --- reranking --------------------------------------------------------------------------


class Document(Strict, frozen=True):
    """A document."""

    text: str


class RankRequest(Struct, frozen=True, kw_only=True):
    """The honoured fields of a request to rank documents."""

    query: str
    documents: list[str | Document] | None = None
    texts: list[str] | None = None
    model: str | None = None
    top_n: Tokens | None = None
    return_documents: bool = False
    return_text: bool = False
    raw_scores: bool | None = None


def ask_rerank(body: bytes, asked: Asked) -> Question:
    """Translate a request to rank documents.

    Raises:
        BridgeError: it has something that is not served, or that contradicts itself.
    """
    wanted = read_body(body, RERANK, RankRequest)
    field, texts = _ranked(wanted)
    if wanted.return_text and field != "texts":
        raise invalid("return_text", "needs texts")
    if wanted.return_documents and field != "documents":
        raise invalid("return_documents", "needs documents")
    request = RerankRequest(
        id=asked.request_id,
        model=wanted.model,
        query=wanted.query,
        documents=texts,
        top_n=wanted.top_n,
    )
    answer: Answer
    is_raw = field != "texts" if wanted.raw_scores is None else wanted.raw_scores
    score = float if is_raw else sigmoid
    if field == "texts":
        answer = ScoredTexts(texts if wanted.return_text else None, score)
    else:
        shown = texts if wanted.return_documents else None
        answer = RankAnswer(asked, wanted.model, shown, score)
    return Question(
        request, answer, field_names={"messages": field, "documents": field}
    )


def _ranked(wanted: RankRequest) -> tuple[str, list[str]]:
    """Return what is ranked, and the field that has it.

    Raises:
        BridgeError: none has, or both have.
    """
    match wanted:
        case RankRequest(documents=[*documents], texts=None):
            return "documents", [
                each.text if isinstance(each, Document) else each for each in documents
            ]
        case RankRequest(documents=None, texts=[*texts]):
            return "texts", texts
        case _:
            raise BridgeError(
                Reason.INVALID_REQUEST,
                "documents: needed, or texts in their place, and not both",
                param="documents",
            )


def sigmoid(score: float) -> float:
    """Return the probability that a score stands for, between 0 and 1."""
    if score < 0:  # without an overflow
        return 1 - sigmoid(-score)
    return 1 / (1 + math.exp(-score))


class RankAnswer(OneFrameAnswer[RerankFrame]):
    """The documents of an answer, by score."""

    def __init__(
        self,
        asked: Asked,
        model: str | None,
        shown: Sequence[str] | None,
        score: Callable[[float], float],
    ) -> None:
        super().__init__(RerankFrame)
        self._score = score
        self._asked = asked
        self._model = model
        self._shown = shown

    def whole(self) -> bytes:
        """Return the list of scores."""
        assert self._frame is not None  # noqa: S101  # the client raises without one
        results: list[dict[str, object]] = []
        for each in self._frame.results:
            result: dict[str, object] = {
                "index": each.index,
                "relevance_score": self._score(each.score),
            }
            if self._shown is not None:
                result["document"] = {"text": self._shown[each.index]}
            results.append(result)
        return msgspec.json.encode(
            {
                "id": f"rerank-{self._asked.request_id.removeprefix('req_')}",
                "object": "list",
                "model": self._model or self._frame.backend,
                "results": results,
                "usage": prompt_usage(self._frame.usage.input_tokens),
            }
        )


class ScoredTexts(OneFrameAnswer[RerankFrame]):
    """The texts of an answer, by score, in the form of Text Embeddings Inference."""

    def __init__(
        self, shown: Sequence[str] | None, score: Callable[[float], float]
    ) -> None:
        super().__init__(RerankFrame)
        self._score = score
        self._shown = shown

    def whole(self) -> bytes:
        """Return the list of scores."""
        assert self._frame is not None  # noqa: S101  # the client raises without one
        results: list[dict[str, object]] = []
        for each in self._frame.results:
            result: dict[str, object] = {
                "index": each.index,
                "score": self._score(each.score),
            }
            if self._shown is not None:
                result["text"] = self._shown[each.index]
            results.append(result)
        return msgspec.json.encode(results)
