"""What the status of an answer says of an error: whose fault it is, and when to ask again."""

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final, NamedTuple

from inferd.config.kinds.remote_limits import MAX_RETRY_AFTER_S
from inferd.ipc.worker import Overflow
from inferd.worker.remote.failure import RemoteError, quote

_MAX_COUNT: Final = 2**31 - 1


class ReportedError(NamedTuple):
    """What the body of an error says, as far as it was understood."""

    message: str = ""
    is_quota: bool = False
    """Whether nothing more is served before somebody pays."""
    is_overflow: bool = False
    """Whether the request does not fit into the context."""
    overflow: Overflow | None = None
    """By how much, if it says so."""
    retry_after_ms: int | None = None
    """When to ask again, if the body says so and not a header."""


def error_of(  # noqa: PLR0911  # a case for each kind of error
    status: int, headers: Mapping[str, str], now: float, reported: ReportedError
) -> RemoteError:
    """Make the error of an answer that is not 200.

    Args:
        status: of HTTP.
        headers: with names in lower case.
        now: seconds since 1970, for a date in ``retry-after``.
        reported: what its body says.
    """
    text = quote(reported.message)
    said = f": {text}" if text else ""
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        return RemoteError("the remote redirects, which is not followed")
    if status in (401, 403):  # its text may quote the key
        return RemoteError(f"the remote refuses the key (HTTP {status})")
    if status == HTTPStatus.PAYMENT_REQUIRED or reported.is_quota:
        return RemoteError("the quota at the remote is used up", is_configuration=True)
    after = retry_after_ms(headers, now) or reported.retry_after_ms
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return RemoteError(
            "the remote's rate limit is reached", retry_after_ms=after, is_limit=True
        )
    if status in (400, 413, 422) or reported.is_overflow or reported.overflow:
        return RemoteError(
            f"the remote refuses it{said}",
            by_request=True,
            overflow=reported.overflow,
        )
    if status == HTTPStatus.NOT_FOUND:
        return RemoteError(
            f"the remote has no such model or address as is configured{said}",
            is_configuration=True,
        )
    return RemoteError(f"the remote failed (HTTP {status}){said}", retry_after_ms=after)


def error_in(reported: ReportedError) -> RemoteError:
    """Make the error that an answer reports although its status was 200."""
    text = quote(reported.message or "no reason given")
    if reported.is_overflow or reported.overflow is not None:
        return RemoteError(
            f"the remote refuses it: {text}",
            by_request=True,
            overflow=reported.overflow,
        )
    return RemoteError(f"the remote failed: {text}")


def overflow_of(prompt: int, total: int, n_ctx: int) -> Overflow | None:
    """Make an overflow, unless its numbers contradict each other.

    Args:
        prompt: tokens of the prompt.
        total: of prompt and answer.
        n_ctx: tokens that one request may take.
    """
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
