"""Resolve embed requests."""

from collections.abc import Sequence, Sized
from typing import Final

from msgspec import UNSET

from inferd.backend.job import EmbedJob
from inferd.errors import InvalidRequestError
from inferd.limits.protocol import EMBED_NUMBER_BYTES, MAX_EMBED_INPUTS, MAX_FRAME_BYTES
from inferd.resolve.options import context_of, keep_alive_of, model_of, via_of
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
    if request.input is not UNSET and request.tokens is not None:
        raise InvalidRequestError("tokens and input exclude each other")
    if request.tokens is not None:
        _check_entries("tokens", request.tokens)
    else:
        _check_entries("input", request.input or ())
    if request.task is not None and request.task not in TASKS:
        raise InvalidRequestError("task uses an unknown variant")
    if request.task is not None and request.tokens is not None:
        raise InvalidRequestError(
            "task adds words to texts, not to tokens; send their tokens with the others"
        )
    if request.dimensions == 0:  # the worker knows the maximum
        raise InvalidRequestError("dimensions 0 must be at least 1")
    job = EmbedJob(
        texts=request.input or [],
        tokens=request.tokens or [],
        dimensions=request.dimensions,
        task=request.task,
    )
    return ResolvedRequest(
        job=job,
        needs=(EMBEDS, *context_of(request)),
        model=model_of(request),
        keep_alive_s=keep_alive_of(request),
        via=via_of(request),
        describe=bool(request.describe),
    )


def _check_entries(field: str, entries: Sequence[Sized]) -> None:
    if not entries:
        raise InvalidRequestError(f"{field} must not be empty")
    if len(entries) > MAX_EMBED_INPUTS:
        raise InvalidRequestError(
            f"{field} has {len(entries)} entries, "
            f"at most {MAX_EMBED_INPUTS} are allowed"
        )
    for index, entry in enumerate(entries):
        if not entry:
            raise InvalidRequestError(f"{field}[{index}] must not be empty")


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
    if job.n_inputs > n_fit:
        raise InvalidRequestError(
            f"{job.field} has {job.n_inputs} entries, at most {n_fit} vectors of "
            f"{dimensions} dimensions fit an answer"
        )
