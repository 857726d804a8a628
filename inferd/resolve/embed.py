"""Embeddings: what a request for vectors comes to."""

from typing import Final

from inferd.errors import InvalidRequestError
from inferd.job import EmbedJob
from inferd.limits import (
    EMBED_NUMBER_BYTES,
    MAX_EMBED_INPUTS,
    MAX_FRAME_BYTES,
)
from inferd.resolve.plan import Plan
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


def resolve_embed(request: EmbedRequest) -> Plan[EmbedJob]:
    """Check an embed request.

    Raises:
        InvalidRequestError: naming the field, its value and what is allowed.
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
    if request.dimensions == 0:  # how many there are is for the worker to say
        raise InvalidRequestError("dimensions 0 must be at least 1")
    job = EmbedJob(
        texts=request.input, dimensions=request.dimensions, task=request.task
    )
    return Plan(job=job, needs=(EMBEDS,))


def check_answer_fits(job: EmbedJob, *, n_embd: int) -> None:
    """Refuse what would be answered by a frame over the cap.

    Raises:
        InvalidRequestError: naming how many texts would do.
    """
    dimensions = min(job.dimensions or n_embd, n_embd)
    n_fit = MAX_FRAME_BYTES // (EMBED_NUMBER_BYTES * dimensions + 2) - 1
    if len(job.texts) > n_fit:
        raise InvalidRequestError(
            f"input has {len(job.texts)} entries, at most {n_fit} vectors of "
            f"{dimensions} dimensions fit an answer"
        )
