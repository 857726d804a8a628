"""Check options against their ranges; values out of range are rejected, never clamped."""

import math
from collections.abc import Callable, Mapping, Sequence

from msgspec import Raw

from inferd.errors import InvalidRequestError
from inferd.limits.protocol import (
    MAX_LOGIT_BIASES,
    MAX_MESSAGES,
    MAX_MODEL_CHARS,
    MAX_PRINCIPAL_CHARS,
    MAX_STOP_BYTES,
    MAX_STOP_TOKENS,
    MAX_STOPS,
    MAX_VIA,
    MAX_VIA_CHARS,
    TEMPERATURE_MAX,
    U32_MAX,
)
from inferd.limits.residency import KEEP_ALIVE_MAX_S
from inferd.routing import Requirement, has_context
from inferd.wire.requests import Request

SEED_MAX = U32_MAX - 1
"""The largest u32 is not a valid seed: llama.cpp treats it as random."""
BIAS_MAX = 100
PENALTY_MAX = 2


def out_of_range(field: str, value: object, allowed: str) -> InvalidRequestError:
    """Make the error for a value out of range."""
    return InvalidRequestError(f"{field} {_format(value)} not in {allowed}")


def json_text(field: str, raw: Raw) -> str:
    """Decode a raw JSON value to its text.

    Raises:
        InvalidRequestError: it is not UTF-8, which was not checked before.
    """
    try:
        return bytes(raw).decode()
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"{field} is not UTF-8") from error


def format_list(values: Sequence[str]) -> str:
    """Format a list of allowed values."""
    return f"[{', '.join(values)}]"


def _format(value: object) -> str:
    """Format a value as in JSON, numbers in full."""
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


def _within(
    low: float, high: float, *, allowed: str, open_low: bool = False
) -> Callable[[str, float], float]:
    def check(field: str, value: float) -> float:
        above = low < value if open_low else low <= value
        if math.isfinite(value) and above and value <= high:
            return value
        raise out_of_range(field, value, allowed)

    return check


RANGES: Mapping[str, Callable[[str, float], float]] = {
    "temperature": _within(0, TEMPERATURE_MAX, allowed=f"[0, {TEMPERATURE_MAX:g}]"),
    "top_p": _within(0, 1, allowed="(0, 1]", open_low=True),
    "min_p": _within(0, 1, allowed="[0, 1]"),
    "repeat_penalty": _within(0, PENALTY_MAX, allowed="(0, 2]", open_low=True),
    "presence_penalty": _within(-PENALTY_MAX, PENALTY_MAX, allowed="[-2, 2]"),
    "frequency_penalty": _within(-PENALTY_MAX, PENALTY_MAX, allowed="[-2, 2]"),
    "keep_alive_s": _within(0, KEEP_ALIVE_MAX_S, allowed=f"[0, {KEEP_ALIVE_MAX_S}]"),
}


def in_range(field: str, value: float) -> float:
    """Check a number by the name of its field.

    Raises:
        InvalidRequestError: with the field, its value and its range.
    """
    return RANGES[field](field, value)


def keep_alive_of(request: Request) -> float | None:
    """Return for how long its model is to stay loaded; ``None`` for as configured.

    Raises:
        InvalidRequestError: it is out of range.
    """
    asked = request.keep_alive_s
    return None if asked is None else in_range("keep_alive_s", asked)


def context_of(request: Request) -> tuple[Requirement, ...]:
    """Return the requirement of a context of some length, if the request has one."""
    asked = request.min_n_ctx
    return (has_context(asked),) if asked else ()


def seed_of(value: int | None, *, drawn: int) -> int:
    """Return the request's seed, or the random one if it has none."""
    if value is None:
        return drawn
    if value > SEED_MAX:
        raise out_of_range("seed", value, f"[0, {SEED_MAX}]")
    return value


def count_in_range(field: str, value: int, low: int, high: int) -> int:
    """Check that an integer is in a range."""
    if not low <= value <= high:
        raise out_of_range(field, value, f"[{low}, {high}]")
    return value


def model_of(request: Request) -> str | None:
    """Return the name of the model that must answer; ``None`` if any may.

    Raises:
        InvalidRequestError: it is empty or too long.
    """
    model = request.model
    if model is not None and not 1 <= len(model) <= MAX_MODEL_CHARS:
        raise InvalidRequestError(
            f"model has {len(model)} characters, 1 to {MAX_MODEL_CHARS} are allowed"
        )
    return model


def via_of(request: Request) -> tuple[str, ...]:
    """Return the daemons that have passed a request on.

    Raises:
        InvalidRequestError: they are too many, or an id has no length that is allowed.
    """
    via = tuple(request.via or ())
    if len(via) > MAX_VIA:
        raise InvalidRequestError(
            f"via has {len(via)} entries: at most {MAX_VIA} daemons pass a request on"
        )
    for index, name in enumerate(via):
        if not 1 <= len(name) <= MAX_VIA_CHARS:
            raise InvalidRequestError(
                f"via[{index}] has {len(name)} characters, "
                f"1 to {MAX_VIA_CHARS} are allowed"
            )
    return via


def check_principal(name: str) -> None:
    """Check who is asking.

    Raises:
        InvalidRequestError: it is empty, too long, or not printable.
    """
    if not 1 <= len(name) <= MAX_PRINCIPAL_CHARS:
        raise InvalidRequestError(
            f"principal has {len(name)} characters, "
            f"1 to {MAX_PRINCIPAL_CHARS} are allowed"
        )
    if not name.isprintable():
        raise InvalidRequestError("principal has characters that are not printable")


def check_message_count(n_messages: int) -> None:
    """Check the length of a conversation."""
    if not n_messages:
        raise InvalidRequestError("messages must not be empty")
    if n_messages > MAX_MESSAGES:
        raise InvalidRequestError(
            f"messages has {n_messages} entries, at most {MAX_MESSAGES} are allowed"
        )


def stops_of(value: Sequence[str] | None) -> tuple[str, ...]:
    """Check stop strings."""
    stops = tuple(value or ())
    if len(stops) > MAX_STOPS:
        raise InvalidRequestError(
            f"stop has {len(stops)} strings, at most {MAX_STOPS} are allowed"
        )
    for index, stop in enumerate(stops):
        n_bytes = len(stop.encode())
        if not 1 <= n_bytes <= MAX_STOP_BYTES:
            raise InvalidRequestError(
                f"stop[{index}] has {n_bytes} bytes, 1 to {MAX_STOP_BYTES} are allowed"
            )
    return stops


def stop_tokens_of(value: Sequence[int] | None) -> tuple[int, ...]:
    """Check the number of stop tokens; the worker checks that the model has them."""
    tokens = tuple(value or ())
    if len(tokens) > MAX_STOP_TOKENS:
        raise InvalidRequestError(
            f"stop_token_ids has {len(tokens)} entries, "
            f"at most {MAX_STOP_TOKENS} are allowed"
        )
    return tokens


def biases_of(value: Mapping[str, float] | None) -> dict[int, float]:
    """Check biases; the worker checks that the model has the tokens."""
    biases = value or {}
    if len(biases) > MAX_LOGIT_BIASES:
        raise InvalidRequestError(
            f"logit_bias has {len(biases)} entries, "
            f"at most {MAX_LOGIT_BIASES} are allowed"
        )
    return {_token_of(key): _bias(key, bias) for key, bias in biases.items()}


def _token_of(key: str) -> int:
    if key.isascii() and key.isdecimal() and len(key) <= len(str(U32_MAX)):
        token = int(key)
        if str(token) == key:
            return token
    raise InvalidRequestError(
        f'logit_bias has a key that is not a decimal token id: "{key}"'
    )


def _bias(key: str, value: float) -> float:
    if math.isfinite(value) and -BIAS_MAX <= value <= BIAS_MAX:
        return value
    raise out_of_range(f"logit_bias[{key}]", value, f"[-{BIAS_MAX}, {BIAS_MAX}]")
