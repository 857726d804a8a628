"""Errors of the Gemini API: a ``google.rpc.Status`` with its details.

Source: https://cloud.google.com/apis/design/errors, ``google/rpc/error_details.proto``.
"""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import msgspec
from msgspec import Struct, field

from inferd.config.kinds.remote_limits import MAX_RETRY_AFTER_S
from inferd.worker.remote.errors import ReportedError, error_in, error_of
from inferd.worker.remote.failure import RemoteError
from inferd.worker.remote.overflow import find_overflow, overflow_pattern

OVERFLOWS: Final = (
    overflow_pattern(
        "Gemini",
        r"input token count \((?P<prompt>\d+)\) exceeds the maximum number of tokens "
        r"allowed \((?P<n_ctx>\d+)\)",
    ),
)
_IS_OVERFLOW: Final = re.compile(
    r"exceeds the maximum number of (?:input )?tokens", re.IGNORECASE
)
_DURATION: Final = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)s").fullmatch
"""``google.protobuf.Duration`` as JSON."""
_REFUSED_KEYS: Final = frozenset({"API_KEY_INVALID", "API_KEY_EXPIRED"})
"""``google.rpc.ErrorInfo``: these come with the status of a bad request."""
_A_DAYS_QUOTA: Final = "PerDay"
"""Part of the names of quotas that are full again the next day alone."""


class _Violation(Struct, rename="camel"):
    quota_id: str = ""


class _Detail(Struct, rename="camel"):
    type: str = field(name="@type", default="")
    reason: str = ""
    retry_delay: str = ""
    violations: list[_Violation] = []


class _Error(Struct):
    code: int = 0
    message: str = ""
    details: list[_Detail] = []


class _Envelope(Struct):
    error: _Error | None = None


def error_of_status(
    status: int, headers: Mapping[str, str], body: bytes, now: float
) -> RemoteError:
    """Make the error of an answer that is not 200; see ``error_of``."""
    error = _decode(body)
    if any(detail.reason in _REFUSED_KEYS for detail in error.details):
        status = HTTPStatus.UNAUTHORIZED
    return error_of(status, headers, now, _reported(error))


def error_in_answer(data: bytes) -> RemoteError:
    """Make the error that an answer reports although its status was 200."""
    error = _decode(data)
    if HTTPStatus.BAD_REQUEST <= error.code < HTTPStatus.INTERNAL_SERVER_ERROR:
        return error_of_status(error.code, {}, data, 0.0)
    return error_in(_reported(error))


def _reported(error: _Error) -> ReportedError:
    return ReportedError(
        message=error.message,
        is_quota=any(
            _A_DAYS_QUOTA in violation.quota_id
            for detail in error.details
            for violation in detail.violations
        ),
        is_overflow=_IS_OVERFLOW.search(error.message) is not None,
        overflow=find_overflow(error.message, OVERFLOWS),
        retry_after_ms=_retry_after_ms(error),
    )


def _retry_after_ms(error: _Error) -> int | None:
    """Read when to ask again, in ``google.rpc.RetryInfo``."""
    for detail in error.details:
        if found := _DURATION(detail.retry_delay):
            return round(min(float(found[1]), MAX_RETRY_AFTER_S) * 1000)
    return None


def _decode(body: bytes) -> _Error:
    """Decode an error; one of a stream without server-sent events is in a list."""
    try:
        found = msgspec.json.decode(body, type=_Envelope | list[_Envelope])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Error()
    envelopes = found if isinstance(found, list) else [found]
    return next((each.error for each in envelopes if each.error), _Error())
