"""Large lines with rerank requests: their documents are few and bounded."""

from typing import Final

from inferd.backend.job import RerankJob
from inferd.limits.protocol import MAX_RERANK_BYTES
from inferd.line_decoder.kind import LineKind, shortened
from inferd.resolve.rerank import resolve_rerank
from inferd.wire.codec import decode_rerank
from inferd.wire.requests import RerankRequest


def _without_content(request: RerankRequest) -> RerankRequest:
    return RerankRequest(
        id=request.id,
        principal=shortened(request.principal),
        query="",
        documents=[],
        top_n=request.top_n,
    )


RERANK: Final = LineKind(
    name="rerank",
    request=RerankRequest,
    job=RerankJob,
    decode=decode_rerank,
    resolve=lambda request, _: resolve_rerank(request),
    without_content=_without_content,
    job_head=lambda job: job,
    content=lambda _: b"",
    max_job_bytes=MAX_RERANK_BYTES,
)
