"""Errors of servers with OpenAI's API: whose fault, when again, and what does not fit.

A context that is too small is told by a text that is another with each server. ``OVERFLOWS``
has them, with where each was found.
"""

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct

from inferd.config.kinds.remote_limits import MAX_RETRY_AFTER_S
from inferd.ipc.worker import Overflow
from inferd.worker.remote.failure import RemoteError, quote

_MAX_COUNT: Final = 2**31 - 1
_OVERFLOW_CODES: Final = frozenset(
    {"context_length_exceeded", "exceed_context_size_error"}
)


class OverflowPattern(NamedTuple):
    """How a server says that a request does not fit into the context."""

    server: str
    pattern: re.Pattern[str]
    """With the groups ``n_ctx``, and ``prompt``, or ``total`` for prompt and answer."""


def _pattern(server: str, text: str) -> OverflowPattern:
    return OverflowPattern(server, re.compile(text, re.IGNORECASE))


OVERFLOWS: Final = (
    _pattern(
        "OpenAI, vLLM",
        r"maximum context length is (?P<n_ctx>\d+) tokens.{0,60}"
        r"requested (?:about )?(?P<total>\d+) (?:output )?tokens \((?P<prompt>\d+) (?:in|of)",
    ),
    _pattern(
        "OpenAI",
        r"maximum context length is (?P<n_ctx>\d+) tokens.{0,60}"
        r"(?:messages|input|prompt) resulted in (?P<prompt>\d+) tokens",
    ),
    _pattern(
        "vLLM",
        r"maximum context length is (?P<n_ctx>\d+) tokens.{0,60}"
        r"(?:request has|prompt contains) (?:at least )?(?P<prompt>\d+) input tokens",
    ),
    _pattern(
        "vLLM",
        r"prompt \(length (?P<prompt>\d+)\) is longer than the maximum model length of "
        r"(?P<n_ctx>\d+)",
    ),
    _pattern(
        "SGLang",
        r"maximum context length of (?P<n_ctx>\d+) tokens.{0,60}total of (?P<total>\d+) "
        r"tokens: (?P<prompt>\d+) tokens from the input",
    ),
    _pattern(
        "SGLang",
        r"input \((?P<prompt>\d+) tokens\) is longer than the model's context length "
        r"\((?P<n_ctx>\d+) tokens\)",
    ),
    _pattern(
        "llama-server",
        r"request \((?P<prompt>\d+) tokens\) exceeds the available context size "
        r"\((?P<n_ctx>\d+) tokens\)",
    ),
    _pattern(
        "LM Studio",
        r"keep the first (?P<prompt>\d+) tokens when context the overflows.{0,80}"
        r"context length of only (?P<n_ctx>\d+) tokens",
    ),
    _pattern("LM Studio", r"n_keep: (?P<prompt>\d+)\s*>= n_ctx: (?P<n_ctx>\d+)"),
    _pattern(
        "inferd",
        r"the prompt has (?:at least )?(?P<prompt>\d+) tokens and the context (?P<n_ctx>\d+)",
    ),
)


class _ErrorBody(Struct):
    message: str | None = None
    code: str | int | None = None
    type: str | None = None
    n_prompt_tokens: int | None = None
    """Of llama-server."""
    n_ctx: int | None = None


class _Envelope(Struct):
    error: _ErrorBody | str | None = None
    message: str | None = None
    """Of vLLM before 0.10, and of SGLang."""
    detail: str | None = None
    """Of servers with FastAPI."""


def error_of_status(  # noqa: PLR0911  # a case for each kind of error
    status: int, headers: Mapping[str, str], body: bytes, now: float
) -> RemoteError:
    """Make the error of an answer that is not 200.

    Args:
        status: of HTTP.
        headers: with names in lower case.
        body: its beginning.
        now: seconds since 1970, for a date in ``retry-after``.
    """
    error = _decode(body)
    text = quote(error.message or "")
    said = f": {text}" if text else ""
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        return RemoteError("the remote redirects, which is not followed")
    if status in (401, 403):  # its text may quote the key
        return RemoteError(f"the remote refuses the key (HTTP {status})")
    if status == HTTPStatus.PAYMENT_REQUIRED or error.code == "insufficient_quota":
        return RemoteError("the quota at the remote is used up")
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        after = retry_after_ms(headers, now)
        return RemoteError(
            "the remote's rate limit is reached", retry_after_ms=after, is_limit=True
        )
    if status in (400, 413, 422) or {error.code, error.type} & _OVERFLOW_CODES:
        overflow = find_overflow(error)
        return RemoteError(
            f"the remote refuses it{said}", by_request=True, overflow=overflow
        )
    if status == HTTPStatus.NOT_FOUND:
        return RemoteError(f"the remote has no such model or address{said}")
    after = retry_after_ms(headers, now)
    return RemoteError(f"the remote failed (HTTP {status}){said}", retry_after_ms=after)


def error_in_answer(data: bytes) -> RemoteError:
    """Make the error that an answer reports although its status was 200."""
    error = _decode(data)
    if (overflow := find_overflow(error)) is not None:
        return RemoteError("the remote refuses it", overflow=overflow)
    return RemoteError(
        f"the remote failed: {quote(error.message or 'no reason given')}"
    )


def find_overflow(error: _ErrorBody) -> Overflow | None:
    """Find by how much a request is too long; ``None`` if the error is another one."""
    if error.n_prompt_tokens is not None and error.n_ctx is not None:
        return _overflow(error.n_prompt_tokens, error.n_prompt_tokens + 1, error.n_ctx)
    for each in OVERFLOWS:
        if found := each.pattern.search(error.message or ""):
            numbers = {
                name: int(digits[:12])
                for name, digits in found.groupdict().items()
                if digits
            }
            prompt = numbers["prompt"]
            return _overflow(prompt, numbers.get("total", prompt + 1), numbers["n_ctx"])
    return None


def _overflow(prompt: int, total: int, n_ctx: int) -> Overflow | None:
    """Make it, unless the numbers contradict each other."""
    if not 0 <= prompt < total <= _MAX_COUNT or not 0 < n_ctx < total:
        return None
    return Overflow(prompt_tokens=prompt, answer_tokens=total - prompt, n_ctx=n_ctx)


def retry_after_ms(headers: Mapping[str, str], now: float) -> int | None:
    """Read when a server may be asked again; ``None`` if it does not say.

    Args:
        headers: ``retry-after-ms`` as OpenAI sends it, or ``retry-after``, which is seconds
            or a date (RFC 9110, 10.2.3).
        now: seconds since 1970.
    """
    try:
        if (given := headers.get("retry-after-ms")) is not None:
            seconds = float(given) / 1000
        elif (given := headers.get("retry-after")) is None:
            return None
        elif given.strip().isdigit():
            seconds = float(given)
        else:
            seconds = parsedate_to_datetime(given).timestamp() - now
    except (ValueError, OverflowError):
        return None
    if not seconds >= 0:
        return None
    return round(min(seconds, MAX_RETRY_AFTER_S) * 1000)


def _decode(body: bytes) -> _ErrorBody:
    try:
        envelope = msgspec.json.decode(body, type=_Envelope)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _ErrorBody()
    match envelope.error:
        case _ErrorBody() as error:
            return error
        case str() as text:
            return _ErrorBody(message=text)
        case _:
            return _ErrorBody(message=envelope.message or envelope.detail)
