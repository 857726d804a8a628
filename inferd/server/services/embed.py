"""The service of the embed socket."""

from msgspec import UNSET, Raw

from inferd.backend.interface import Backend, Prepared
from inferd.backend.job import EmbedJob
from inferd.resolve.embed import check_answer_fits, resolve_embed
from inferd.server.connection.response_writer import ResponseWriter
from inferd.server.request_context import RequestStats
from inferd.server.services.encode import EncodeService
from inferd.server.services.pipeline import Pipeline
from inferd.wire.requests import EmbedRequest
from inferd.wire.responses import EmbeddingsFrame, EncodeUsage


def embed_service(pipeline: Pipeline) -> EncodeService[EmbedRequest, EmbedJob]:
    """Make the embed socket's service."""
    return EncodeService(pipeline, resolve_embed, _embed)


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
        usage=EncodeUsage(
            result.input_tokens, is_estimate=True if result.is_estimate else UNSET
        ),
        backend=backend.name,
    )
    reply.put_in_parts(frame, result.embeddings)
    return {"dimensions": result.dimensions}
