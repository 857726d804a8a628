"""Embeddings and scores: a request in, one frame out."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from msgspec import Raw

from inferd.backend import Backend, Prepared
from inferd.errors import CancelledError
from inferd.job import EmbedJob, RerankJob
from inferd.resolve.embed import check_answer_fits, resolve_embed
from inferd.resolve.plan import Plan
from inferd.resolve.rerank import resolve_rerank
from inferd.server.activity import Activity
from inferd.server.apart import resolved_or
from inferd.server.entrance import Entrance
from inferd.server.facts import Facts
from inferd.server.reply import Reply
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
    """Answers with the first backend that can."""

    entrance: Entrance
    resolve: Callable[[R], Plan[J]]
    run: Callable[[R, Backend, Prepared[J], Reply], Awaitable[Facts]]
    """Gives what the log is to say of the answer."""

    async def answer(self, request: R, reply: Reply, activity: Activity) -> None:
        """Serve one request to its terminal frame.

        Raises:
            InferdError: it cannot be served; no terminal frame was written.
            PeerGoneError: nobody reads the answer.

        Cancellation: the job is dropped and its permit freed.
        """
        plan = resolved_or(activity.resolved, lambda: self.resolve(request))
        with activity.scope:
            async with self.entrance.enter(plan, activity) as (backend, prepared):
                facts = await self.run(request, backend, prepared, reply)
                activity.facts.update(facts)
        if not reply.is_over:
            raise CancelledError
        await reply.finish()
        activity.done("end")


def embed_service(entrance: Entrance) -> EncodeService[EmbedRequest, EmbedJob]:
    """Make the service of the embed socket."""
    return EncodeService(entrance, resolve_embed, _embed)


def rerank_service(entrance: Entrance) -> EncodeService[RerankRequest, RerankJob]:
    """Make the service of the rerank socket."""
    return EncodeService(entrance, resolve_rerank, _rerank)


async def _embed(
    request: EmbedRequest,
    backend: Backend,
    prepared: Prepared[EmbedJob],
    reply: Reply,
) -> Facts:
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
    reply: Reply,
) -> Facts:
    result = await backend.rerank(prepared)
    ranked = [RankedDocument(*each) for each in enumerate(result.scores)]
    ranked.sort(key=lambda each: -each.score)  # equals stay in the request's order
    frame = RerankFrame(
        id=request.id,
        results=ranked[: request.top_n],
        model=backend.capabilities.model,
        usage=EncodeUsage(result.input_tokens),
        backend=backend.name,
    )
    reply.put([frame])
    return {"n_results": len(frame.results)}
