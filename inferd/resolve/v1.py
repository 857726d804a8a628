"""Resolve v1 generation requests."""

from inferd.backend.job import NO_UID, GenerateJob, Sampling, Turn
from inferd.errors import InvalidRequestError
from inferd.limits.protocol import (
    DEFAULT_MAX_TOKENS,
    DEFAULT_TEMPERATURE,
    DEFAULT_TOP_K,
    DEFAULT_TOP_P,
    IMAGE_TOKEN_BUDGETS,
)
from inferd.resolve.options import (
    check_message_count,
    context_of,
    in_range,
    keep_alive_of,
    model_of,
    seed_of,
    stops_of,
    via_of,
)
from inferd.resolve.request import ResolvedRequest
from inferd.resolve.structure import grammar_of
from inferd.routing import CONSTRAINS_OUTPUT, GENERATES
from inferd.wire.requests import GenerateRequest


def resolve_v1(
    request: GenerateRequest, *, seed: int, owner: int = NO_UID
) -> ResolvedRequest[GenerateJob]:
    """Validate a v1 request and fill in defaults.

    Args:
        request: the decoded request.
        seed: random seed, used if the request has none; 0 to 2**32 - 2.
        owner: the user who sent it.

    Raises:
        InvalidRequestError: with the field, its value and what is allowed.
    """
    check_message_count(len(request.messages))
    _check_budget(request.image_token_budget)
    max_tokens = request.max_tokens
    job = GenerateJob(
        owner=owner,
        turns=[Turn(each.role, each.content) for each in request.messages],
        structure=grammar_of(request.grammar),
        max_tokens=DEFAULT_MAX_TOKENS if max_tokens is None else max_tokens,
        sampling=_sampling(request, seed),
        stops=stops_of(request.stop),
        wants_progress=bool(request.progress),
    )
    return ResolvedRequest(
        job=job,
        needs=(
            GENERATES,
            *((CONSTRAINS_OUTPUT,) if job.is_structured else ()),
            *context_of(request),
        ),
        model=model_of(request),
        streams=request.stream is not False,
        keep_alive_s=keep_alive_of(request),
        via=via_of(request),
        describe=bool(request.describe),
    )


def _sampling(request: GenerateRequest, seed: int) -> Sampling:
    temperature = request.temperature
    top_p = request.top_p
    top_k = request.top_k
    return Sampling(
        temperature=in_range(
            "temperature", DEFAULT_TEMPERATURE if temperature is None else temperature
        ),
        top_p=in_range("top_p", DEFAULT_TOP_P if top_p is None else top_p),
        top_k=DEFAULT_TOP_K if top_k is None else top_k,
        min_p=0.0,
        seed=seed_of(request.seed, drawn=seed),
        seed_given=request.seed is not None,
    )


def _check_budget(value: int | None) -> None:
    if value is not None and value not in IMAGE_TOKEN_BUDGETS:
        allowed = list(IMAGE_TOKEN_BUDGETS)
        raise InvalidRequestError(f"image_token_budget {value} not in {allowed}")
