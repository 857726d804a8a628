"""v1 generation: what a request for text comes to."""

from inferd.errors import InvalidRequestError
from inferd.job import NOBODY, GenerateJob, Sampling, Turn
from inferd.limits import (
    DEFAULT_MAX_TOKENS,
    DEFAULT_TEMPERATURE,
    DEFAULT_TOP_K,
    DEFAULT_TOP_P,
    IMAGE_TOKEN_BUDGETS,
)
from inferd.resolve.plan import Plan
from inferd.resolve.sampling import check_turns, in_range, seed_of, stops_of
from inferd.resolve.structure import grammar_of
from inferd.routing import GENERATES, HOLDS_STRUCTURE
from inferd.wire.requests import GenerateRequest


def resolve_text(
    request: GenerateRequest, *, seed: int, owner: int = NOBODY
) -> Plan[GenerateJob]:
    """Check a v1 request and fill in what it left open.

    Args:
        request: as it was read.
        seed: drawn for it, in case it names none; 0 to 2**32 - 2.
        owner: the user who asks.

    Raises:
        InvalidRequestError: naming the field, its value and what is allowed.
    """
    check_turns(len(request.messages))
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
    return Plan(
        job=job,
        needs=(GENERATES, HOLDS_STRUCTURE) if job.is_structured else (GENERATES,),
        streams=request.stream is not False,
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
    )


def _check_budget(value: int | None) -> None:
    if value is not None and value not in IMAGE_TOKEN_BUDGETS:
        allowed = list(IMAGE_TOKEN_BUDGETS)
        raise InvalidRequestError(f"image_token_budget {value} not in {allowed}")
