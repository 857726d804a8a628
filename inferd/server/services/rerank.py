"""The service of the rerank socket."""

from msgspec import UNSET

from inferd.backend.interface import Backend, Prepared
from inferd.backend.job import RerankJob
from inferd.resolve.rerank import resolve_rerank
from inferd.server.connection.response_writer import ResponseWriter
from inferd.server.request_context import RequestStats
from inferd.server.services.encode import EncodeService
from inferd.server.services.pipeline import Pipeline
from inferd.wire.requests import RerankRequest
from inferd.wire.responses import EncodeUsage, RankedDocument, RerankFrame


def rerank_service(pipeline: Pipeline) -> EncodeService[RerankRequest, RerankJob]:
    """Make the rerank socket's service."""
    return EncodeService(pipeline, resolve_rerank, _rerank)


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
        usage=EncodeUsage(
            result.input_tokens, is_estimate=True if result.is_estimate else UNSET
        ),
        backend=backend.name,
    )
    reply.put([frame])
    return {"n_results": len(frame.results)}
