"""Resolve embed requests."""

from typing import Final

from inferd.backend.job import EmbedJob
from inferd.errors import InvalidRequestError
from inferd.limits.protocol import EMBED_NUMBER_BYTES, MAX_EMBED_INPUTS, MAX_FRAME_BYTES
from inferd.resolve.options import context_of, keep_alive_of, model_of
from inferd.resolve.request import ResolvedRequest
from inferd.routing import EMBEDS
from inferd.wire.requests import EmbedRequest

TASKS: Final = (
    "retrieval_query",
    "retrieval_document",
    "similarity",
    "classification",
    "clustering",
    "question_answering",
    "fact_verification",
    "code_retrieval_query",
)


def resolve_embed(request: EmbedRequest) -> ResolvedRequest[EmbedJob]:
    """Validate an embed request.

    Raises:
        InvalidRequestError: with the field, its value and what is allowed.
    """
    if not request.input:
        raise InvalidRequestError("input must not be empty")
    if len(request.input) > MAX_EMBED_INPUTS:
        raise InvalidRequestError(
            f"input has {len(request.input)} entries, "
            f"at most {MAX_EMBED_INPUTS} are allowed"
        )
    for index, text in enumerate(request.input):
        if not text:
            raise InvalidRequestError(f"input[{index}] must not be empty")
    if request.task is not None and request.task not in TASKS:
        raise InvalidRequestError("task uses an unknown variant")
    if request.dimensions == 0:  # the worker knows the maximum
        raise InvalidRequestError("dimensions 0 must be at least 1")
    job = EmbedJob(
        texts=request.input, dimensions=request.dimensions, task=request.task
    )
    return ResolvedRequest(
        job=job,
        needs=(EMBEDS, *context_of(request)),
        model=model_of(request),
        keep_alive_s=keep_alive_of(request),
        describe=bool(request.describe),
    )


def check_answer_fits(job: EmbedJob, *, n_embd: int) -> None:
    """Check that the vectors fit one frame.

    Args:
        job: the request.
        n_embd: dimensions of the model's vectors.

    Raises:
        InvalidRequestError: they do not; the text says how many texts would fit.
    """
    dimensions = min(job.dimensions or n_embd, n_embd)
    n_fit = MAX_FRAME_BYTES // (EMBED_NUMBER_BYTES * dimensions + 2) - 1
    if len(job.texts) > n_fit:
        raise InvalidRequestError(
            f"input has {len(job.texts)} entries, at most {n_fit} vectors of "
            f"{dimensions} dimensions fit an answer"
        )
