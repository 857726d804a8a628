"""Resolve rerank requests."""

from inferd.backend.job import RerankJob
from inferd.errors import InvalidRequestError
from inferd.limits.protocol import MAX_RERANK_BYTES, MAX_RERANK_DOCUMENTS, U32_MAX
from inferd.resolve.options import (
    context_of,
    count_in_range,
    keep_alive_of,
    model_of,
    via_of,
)
from inferd.resolve.request import ResolvedRequest
from inferd.routing import RERANKS
from inferd.wire.requests import RerankRequest


def resolve_rerank(request: RerankRequest) -> ResolvedRequest[RerankJob]:
    """Validate a rerank request.

    Raises:
        InvalidRequestError: with the field, its value and what is allowed.
    """
    if not request.query:
        raise InvalidRequestError("query must not be empty")
    _check_documents(request.documents)
    n_bytes = sum(len(text.encode()) for text in (request.query, *request.documents))
    if n_bytes > MAX_RERANK_BYTES:
        raise InvalidRequestError(
            f"query and documents have {n_bytes} bytes, "
            f"at most {MAX_RERANK_BYTES} are allowed"
        )
    if request.top_n is not None:
        count_in_range("top_n", request.top_n, 1, U32_MAX)
    job = RerankJob(query=request.query, documents=request.documents)
    return ResolvedRequest(
        job=job,
        needs=(RERANKS, *context_of(request)),
        model=model_of(request),
        keep_alive_s=keep_alive_of(request),
        via=via_of(request),
        describe=bool(request.describe),
    )


def _check_documents(documents: list[str]) -> None:
    if not documents:
        raise InvalidRequestError("documents must not be empty")
    if len(documents) > MAX_RERANK_DOCUMENTS:
        raise InvalidRequestError(
            f"documents has {len(documents)} entries, "
            f"at most {MAX_RERANK_DOCUMENTS} are allowed"
        )
    for index, text in enumerate(documents):
        if not text:
            raise InvalidRequestError(f"documents[{index}] must not be empty")
