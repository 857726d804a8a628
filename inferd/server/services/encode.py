"""The services of the embed and rerank sockets: a request in, one frame out."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from msgspec import Raw

from inferd.backend.interface import Backend, Prepared
from inferd.backend.job import EmbedJob, RerankJob
from inferd.errors import CancelledError
from inferd.resolve.embed import check_answer_fits, resolve_embed
from inferd.resolve.request import ResolvedRequest
from inferd.resolve.rerank import resolve_rerank
from inferd.server.connection.response_writer import ResponseWriter
from inferd.server.large_lines.decode import resolved_or
from inferd.server.request_context import RequestContext, RequestStats
from inferd.server.services.pipeline import Pipeline, resolved_job
from inferd.wire.requests import EmbedRequest, RerankRequest
from inferd.wire.responses import (
    EmbeddingsFrame,
    EncodeUsage,
    RankedDocument,
    RerankFrame,
)

R = TypeVar("R")
J = TypeVar("J", EmbedJob, RerankJob)


@dataclass(frozen=True)
class EncodeService(Generic[R, J]):
    """Service of a socket with one frame per answer; uses the first backend that can."""

    pipeline: Pipeline
    resolve: Callable[[R], ResolvedRequest[J]]
    run: Callable[[R, Backend, Prepared[J], ResponseWriter], Awaitable[RequestStats]]
    """Runs the job and queues its frame; gives statistics for the log."""

    async def answer(
        self, request: R, reply: ResponseWriter, context: RequestContext
    ) -> None:
        """Serve one request to its terminal frame.

        Raises:
            InferdError: it cannot be served; no terminal frame was sent.
            PeerGoneError: the client has disconnected.

        Cancellation: the job is dropped and its permit freed.
        """
        plan = resolved_or(context.resolved, lambda: self.resolve(request))
        with context.scope:
            async with self.pipeline.admit(plan, context, resolved_job(plan)) as (
                backend,
                prepared,
            ):
                stats = await self.run(request, backend, prepared, reply)
                context.stats.update(stats)
        if not reply.is_over:
            raise CancelledError
        await reply.finish()
        context.done("end")


def embed_service(pipeline: Pipeline) -> EncodeService[EmbedRequest, EmbedJob]:
    """Make the embed socket's service."""
    return EncodeService(pipeline, resolve_embed, _embed)


def rerank_service(pipeline: Pipeline) -> EncodeService[RerankRequest, RerankJob]:
    """Make the rerank socket's service."""
    return EncodeService(pipeline, resolve_rerank, _rerank)


async def _embed(
    request: EmbedRequest,
    backend: Backend,
    prepared: Prepared[EmbedJob],
    reply: ResponseWriter,
) -> RequestStats:
    check_answer_fits(prepared.job, n_embd=backend.capabilities.n_embd)
    result = await backend.embed(prepared)
    frame = EmbeddingsFrame(
        id=request.id,
        embeddings=Raw(b"[]"),
        dimensions=result.dimensions,
        model=backend.capabilities.model,
        usage=EncodeUsage(result.input_tokens),
        backend=backend.name,
    )
    reply.put_in_parts(frame, result.embeddings)
    return {"dimensions": result.dimensions}


async def _rerank(
    request: RerankRequest,
    backend: Backend,
    prepared: Prepared[RerankJob],
    reply: ResponseWriter,
) -> RequestStats:
    result = await backend.rerank(prepared)
    ranked = [RankedDocument(*each) for each in enumerate(result.scores)]
    ranked.sort(
        key=lambda each: -each.score
    )  # a stable sort: equal scores keep the request's order
    frame = RerankFrame(
        id=request.id,
        results=ranked[: request.top_n],
        model=backend.capabilities.model,
        usage=EncodeUsage(result.input_tokens),
        backend=backend.name,
    )
    reply.put([frame])
    return {"n_results": len(frame.results)}
