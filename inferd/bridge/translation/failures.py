"""The failures that callers of the bridge are told, before an API gives them its form."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Reason(StrEnum):
    """The kind of a failure; its value is the code that callers read."""

    INVALID_REQUEST = "invalid_request"
    UNKNOWN_FIELD = "unknown_parameter"
    UNSUPPORTED = "unsupported_parameter"
    CONTEXT_OVERFLOW = "context_length_exceeded"
    UNAUTHENTICATED = "invalid_api_key"
    FORBIDDEN = "permission_denied"
    ROUTE_NOT_FOUND = "route_not_found"
    MODEL_NOT_FOUND = "model_not_found"
    CHAT_NOT_FOUND = "chat_not_found"
    MESSAGE_NOT_FOUND = "message_not_found"
    ATTACHMENT_NOT_FOUND = "attachment_not_found"
    CONTENT_REFUSED = "content_refused"
    FILTER_FAILED = "filter_failed"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    TIMEOUT = "request_timeout"
    CHAT_CONFLICT = "chat_conflict"
    TOO_LARGE = "request_too_large"
    CODING = "unsupported_encoding"
    QUEUE_FULL = "queue_full"
    CHAT_LIMIT = "chat_limit"
    TOO_MANY_FAILURES = "too_many_failed_tokens"
    QUOTA = "insufficient_quota"
    INTERNAL = "internal"
    NOT_CONFIGURED = "not_configured"
    NOT_DONE = "not_done"
    CHATS_UNAVAILABLE = "chats_unavailable"
    UNAVAILABLE = "backend_unavailable"
    CANCELLED = "cancelled"
    DEADLINE = "deadline_exceeded"


STATUS: Final[Mapping[Reason, int]] = {
    Reason.INVALID_REQUEST: 400,
    Reason.UNKNOWN_FIELD: 400,
    Reason.UNSUPPORTED: 400,
    Reason.CONTEXT_OVERFLOW: 400,
    Reason.UNAUTHENTICATED: 401,
    Reason.FORBIDDEN: 403,
    Reason.ROUTE_NOT_FOUND: 404,
    Reason.MODEL_NOT_FOUND: 404,
    Reason.CHAT_NOT_FOUND: 404,
    Reason.MESSAGE_NOT_FOUND: 404,
    Reason.ATTACHMENT_NOT_FOUND: 404,
    Reason.CONTENT_REFUSED: 403,
    Reason.FILTER_FAILED: 503,
    Reason.METHOD_NOT_ALLOWED: 405,
    Reason.TIMEOUT: 408,
    Reason.CHAT_CONFLICT: 409,
    Reason.TOO_LARGE: 413,
    Reason.CODING: 415,
    Reason.QUEUE_FULL: 429,
    Reason.CHAT_LIMIT: 429,
    Reason.TOO_MANY_FAILURES: 429,
    Reason.QUOTA: 429,
    Reason.INTERNAL: 500,
    Reason.NOT_CONFIGURED: 501,
    Reason.NOT_DONE: 502,
    Reason.CHATS_UNAVAILABLE: 503,
    Reason.UNAVAILABLE: 503,
    Reason.CANCELLED: 503,
    Reason.DEADLINE: 504,
}
"""The HTTP status of each."""


@dataclass(frozen=True)
class TokenOverflow:
    """How far a prompt does not fit in the context."""

    n_tokens: int
    """Of the prompt, as far as it was counted."""
    n_ctx: int
    n_over: int
    """Tokens to remove, if that is known; else 0."""


class BridgeError(Exception):
    """A request that is not answered; its text is meant for the caller.

    Args:
        reason: the kind.
        text: a sentence for people.
        param: the field of the request that is at fault, if one is.
        retry_after_s: seconds until a retry may succeed, if that is known.
        allow: with ``METHOD_NOT_ALLOWED``, the methods of the route.
        queue_depth: with ``QUEUE_FULL``, the requests that wait in the daemon, if it is the
            daemon's queue that is full.
        overflow: with ``CONTEXT_OVERFLOW``, by how much, if that is known.
    """

    def __init__(  # noqa: PLR0913  # what callers are told
        self,
        reason: Reason,
        text: str,
        *,
        param: str | None = None,
        retry_after_s: float | None = None,
        allow: str = "",
        queue_depth: int | None = None,
        overflow: TokenOverflow | None = None,
    ) -> None:
        self.reason = reason
        self.param = param
        self.retry_after_s = retry_after_s
        self.allow = allow
        self.queue_depth = queue_depth
        self.overflow = overflow
        super().__init__(text)

    @property
    def status(self) -> int:
        """Its HTTP status."""
        return STATUS[self.reason]


def invalid(place: str, text: str) -> BridgeError:
    """Return the failure of a request in which the field at a place is at fault."""
    return BridgeError(Reason.INVALID_REQUEST, f"{place}: {text}", param=place)
