"""Errors of the Messages API, with a status or as an event of an answer.

Source: ``anthropic.types.shared.ErrorObject`` of the package ``anthropic``, and
https://platform.claude.com/docs/en/api/errors. Their types stand for what the status says, so
that an event tells the same.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from inferd.worker.remote.errors import ReportedError, error_in, error_of
from inferd.worker.remote.failure import RemoteError
from inferd.worker.remote.overflow import (
    OF_A_BRIDGE,
    find_overflow,
    overflow_pattern,
)

OVERFLOWS: Final = (
    overflow_pattern(
        "Anthropic",
        r"prompt is too long: (?P<prompt>\d+) tokens > (?P<n_ctx>\d+) maximum",
    ),
    overflow_pattern(
        "Anthropic",
        r"input length and `?max_tokens`? exceed context limit: (?P<prompt>\d+) \+ "
        r"(?P<answer>\d+) > (?P<n_ctx>\d+)",
    ),
    *OF_A_BRIDGE,
)
"""The last are those of this project's bridge."""
_STATUSES: Final[Mapping[str, int]] = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
}
"""Of the errors that are not the server's own."""


class _Error(Struct):
    type: str = ""
    message: str = ""


class _Envelope(Struct):
    error: _Error | None = None


def error_of_status(
    status: int, headers: Mapping[str, str], body: bytes, now: float
) -> RemoteError:
    """Make the error of an answer that is not 200; see ``error_of``."""
    return error_of(status, headers, now, _reported(_decode(body)))


def error_in_answer(data: bytes) -> RemoteError:
    """Make the error that an answer reports although its status was 200."""
    error = _decode(data)
    reported = _reported(error)
    if (status := _STATUSES.get(error.type)) is not None:
        return error_of(status, {}, 0.0, reported)
    return error_in(reported)


def _reported(error: _Error) -> ReportedError:
    return ReportedError(
        message=error.message,
        is_quota=error.type == "billing_error"
        or "credit balance is too low" in error.message,
        overflow=find_overflow(error.message, OVERFLOWS),
    )


def _decode(body: bytes) -> _Error:
    try:
        return msgspec.json.decode(body, type=_Envelope).error or _Error()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Error()
