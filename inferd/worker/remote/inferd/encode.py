"""Vectors and scores of a daemon."""

import math
from collections.abc import Sequence

from msgspec import UNSET

from inferd.backend.job import EmbedJob, RerankJob
from inferd.config.kinds.inferd import InferdSettings
from inferd.ipc.worker import Embedded, Scored
from inferd.surfaces import EMBED, RERANK
from inferd.wire.requests import EmbedRequest, RerankRequest
from inferd.worker.remote.api import AnswerForm, RemoteRequest
from inferd.worker.remote.failure import RemoteError
from inferd.worker.remote.inferd.frames import Frame, count_of, read_last
from inferd.worker.remote.inferd.request import REQUEST_ID, asked_at, write_line
from inferd.worker.remote.vectors import in_order, read_vectors


def write_embed(
    settings: InferdSettings, job: EmbedJob, _recording: bytes
) -> RemoteRequest:
    """Write the line for vectors; fewer dimensions are cut off here."""
    asked = EmbedRequest(
        id=REQUEST_ID,
        model=settings.model,
        via=[*job.via] or None,
        task=job.task,
        input=UNSET if job.tokens else job.texts,
        tokens=job.tokens or None,
    )
    return asked_at(settings, EMBED, write_line(asked), AnswerForm.DOCUMENT)


def read_embed(
    settings: InferdSettings, ticket: int, job: EmbedJob, body: bytes
) -> Sequence[Embedded]:
    """Read the vectors.

    Raises:
        RemoteError: they are not as many as texts, not of one length, or no numbers.
    """
    frame = read_last(body, "embeddings")
    vectors = frame.embeddings or []
    return read_vectors(settings.n_embd, ticket, job, vectors, _n_tokens(frame))


def write_rerank(
    settings: InferdSettings, job: RerankJob, _recording: bytes
) -> RemoteRequest:
    """Write the line for scores."""
    asked = RerankRequest(
        id=REQUEST_ID,
        model=settings.model,
        via=[*job.via] or None,
        query=job.query,
        documents=job.documents,
    )
    return asked_at(settings, RERANK, write_line(asked), AnswerForm.DOCUMENT)


def read_rerank(
    _settings: InferdSettings, ticket: int, job: RerankJob, body: bytes
) -> Sequence[Scored]:
    """Read the scores, which come best first.

    Raises:
        RemoteError: they are not as many as documents, or no numbers.
    """
    frame = read_last(body, "rerank")
    scores = in_order([(each.index, each.score) for each in frame.results or ()])
    if len(scores) != len(job.documents) or not all(map(math.isfinite, scores)):
        raise RemoteError(
            f"the remote sent {len(scores)} scores for {len(job.documents)} documents"
        )
    return [Scored(ticket=ticket, scores=scores, n_tokens=_n_tokens(frame))]


def _n_tokens(frame: Frame) -> int | None:
    """Return the remote's count; ``None`` if it has only estimated."""
    usage = frame.usage
    if usage is None or usage.is_estimate:
        return None
    return count_of(usage.input_tokens) or None
