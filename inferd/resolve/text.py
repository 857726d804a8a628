"""A request's meaning, checked once: request in, job out, nothing optional left."""

import math

from inferd.errors import InvalidRequestError
from inferd.job import GenerateJob, Sampling
from inferd.limits import (
    DEFAULT_MAX_TOKENS,
    GRAMMAR_MAX_ALTERNATIVES,
    GRAMMAR_MAX_BYTES,
    IMAGE_TOKEN_BUDGETS,
    TEMPERATURE_MAX,
)
from inferd.wire.requests import GenerateRequest

DEFAULT_TEMPERATURE = 1.0
DEFAULT_TOP_P = 0.95
DEFAULT_TOP_K = 64


def resolve_generate(request: GenerateRequest, *, seed: int) -> GenerateJob:
    """Check a v1 request and fill in what it left open.

    Args:
        request: as it was read.
        seed: of the sampler; 0 to 2**32 - 2.

    Raises:
        InvalidRequestError: naming the field, its value and what is allowed.
    """
    if not request.messages:
        raise InvalidRequestError("messages must not be empty")
    _check_budget(request.image_token_budget)
    _check_grammar(request.grammar)
    max_tokens = request.max_tokens
    return GenerateJob(
        messages=request.messages,
        max_tokens=DEFAULT_MAX_TOKENS if max_tokens is None else max_tokens,
        sampling=_sampling(request, seed),
    )


def _sampling(request: GenerateRequest, seed: int) -> Sampling:
    temperature = request.temperature
    top_p = request.top_p
    top_k = request.top_k
    return Sampling(
        temperature=DEFAULT_TEMPERATURE
        if temperature is None
        else _temperature(temperature),
        top_p=DEFAULT_TOP_P if top_p is None else _top_p(top_p),
        top_k=DEFAULT_TOP_K if top_k is None else top_k,
        seed=seed,
        grammar=request.grammar,
    )


def _temperature(value: float) -> float:
    if math.isfinite(value) and 0 <= value <= TEMPERATURE_MAX:
        return value
    raise InvalidRequestError(
        f"temperature {_shown(value)} not in [0, {TEMPERATURE_MAX:g}]"
    )


def _top_p(value: float) -> float:
    if math.isfinite(value) and 0 < value <= 1:
        return value
    raise InvalidRequestError(f"top_p {_shown(value)} not in (0, 1]")


def _shown(value: float) -> str:
    """Write a number in full, as JSON would have it."""
    return repr(value).removesuffix(".0")


def _check_budget(value: int | None) -> None:
    if value is not None and value not in IMAGE_TOKEN_BUDGETS:
        allowed = list(IMAGE_TOKEN_BUDGETS)
        raise InvalidRequestError(f"image_token_budget {value} not in {allowed}")


def _check_grammar(grammar: str) -> None:
    n_bytes = len(grammar.encode())
    if n_bytes > GRAMMAR_MAX_BYTES:
        raise InvalidRequestError(
            f"grammar has {n_bytes} bytes, at most {GRAMMAR_MAX_BYTES} are allowed"
        )
    alternatives = grammar.count("|")
    if alternatives > GRAMMAR_MAX_ALTERNATIVES:
        raise InvalidRequestError(
            f"grammar has {alternatives} alternatives (|), "
            f"at most {GRAMMAR_MAX_ALTERNATIVES} are allowed"
        )
