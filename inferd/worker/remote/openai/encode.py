"""Embeddings and scores of OpenAI's API, and of Jina's and Cohere's.

Sources: OpenAI's OpenAPI document 2.3.0, ``CreateEmbeddingRequest``; for scores, which it does
not have, ``/v1/rerank`` of llama-server and vLLM.
"""

import math
from collections.abc import Sequence
from typing import Final, TypeVar

import msgspec
from msgspec import Raw, Struct

from inferd.backend.job import EmbedJob, RerankJob
from inferd.config.kinds.openai import OpenAiSettings
from inferd.ipc.worker import Embedded, Scored
from inferd.worker.backend import RefusedError
from inferd.worker.remote.api import AnswerForm, RemoteRequest
from inferd.worker.remote.failure import RemoteError
from inferd.worker.remote.openai.errors import error_in_answer
from inferd.worker.remote.vectors import in_order, read_vectors

_NULL: Final = Raw(b"null")
T = TypeVar("T", bound="_Answer")


class _Counts(Struct):
    prompt_tokens: int | None = None
    total_tokens: int | None = None


class _Answer(Struct, kw_only=True):
    usage: _Counts | None = None
    error: Raw = _NULL


class _Vector(Struct):
    index: int
    embedding: list[float]


class _Vectors(_Answer, kw_only=True):
    data: list[_Vector] = []


class _Score(Struct):
    index: int
    relevance_score: float


class _Scores(_Answer, kw_only=True):
    results: list[_Score] = []


def write_embed(
    settings: OpenAiSettings, job: EmbedJob, _recording: bytes
) -> RemoteRequest:
    """Write the request for vectors.

    Fewer dimensions are cut off here, as the API defines it: not all servers do it.

    Raises:
        RefusedError: the job has what the server cannot honour.
    """
    if job.task is not None:
        raise RefusedError(f'task: backend "{settings.name}" cannot do this')
    body = {
        "model": settings.model,
        "input": job.tokens or job.texts,
        "encoding_format": "float",
    }
    data = msgspec.json.encode(body)
    return RemoteRequest("/embeddings", data, AnswerForm.DOCUMENT)


def read_embed(
    settings: OpenAiSettings, ticket: int, job: EmbedJob, body: bytes
) -> Sequence[Embedded]:
    """Read the vectors, which come in any order.

    Raises:
        RemoteError: they are not as many as texts, not of one length, or no numbers.
    """
    answer = _decode(body, _Vectors)
    ordered = in_order([(each.index, each.embedding) for each in answer.data])
    return read_vectors(settings.n_embd, ticket, job, ordered, _n_tokens(answer))


def write_rerank(
    settings: OpenAiSettings, job: RerankJob, _recording: bytes
) -> RemoteRequest:
    """Write the request for scores."""
    body = {
        "model": settings.model,
        "query": job.query,
        "documents": job.documents,
        "top_n": len(job.documents),
    }
    data = msgspec.json.encode(body)
    return RemoteRequest("/rerank", data, AnswerForm.DOCUMENT)


def read_rerank(
    _settings: OpenAiSettings, ticket: int, job: RerankJob, body: bytes
) -> Sequence[Scored]:
    """Read the scores, which come best first.

    Raises:
        RemoteError: they are not as many as documents, or no numbers.
    """
    answer = _decode(body, _Scores)
    found = [(each.index, each.relevance_score) for each in answer.results]
    scores = in_order(found)
    if len(scores) != len(job.documents) or not all(map(math.isfinite, scores)):
        raise RemoteError(
            f"the remote sent {len(scores)} scores for {len(job.documents)} documents"
        )
    return [Scored(ticket=ticket, scores=scores, n_tokens=_n_tokens(answer))]


def _decode(body: bytes, kind: type[T]) -> T:
    try:
        answer = msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise RemoteError("the remote's answer is none of this API") from None
    if answer.error != _NULL:
        raise error_in_answer(body)
    return answer


def _n_tokens(answer: _Answer) -> int | None:
    """Return what the remote counted: Cohere's form has the total alone."""
    usage = answer.usage or _Counts()
    counted = usage.total_tokens if usage.prompt_tokens is None else usage.prompt_tokens
    return counted if counted is not None and 0 < counted < 2**31 else None
