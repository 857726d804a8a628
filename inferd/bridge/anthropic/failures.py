"""Failures in Anthropic's form.

The status stays that of HTTP: clients choose the class of an exception by it, and the SDK
repeats a request after 503 as it does after 529, which no registry of HTTP has. The type in
the body is the one that clients look for.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import UNSET, Struct, UnsetType

from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.bridge.translation.sse import event

_TYPES: Final[Mapping[int, str]] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    503: "api_error",
    504: "timeout_error",
}


_NO_THREADS: Final = {"error_code": "thread_unsupported_request"}
"""By which the SDK knows that it has to send the whole conversation."""


class AnthropicError(Struct, frozen=True):
    """What a failure says."""

    type: str
    message: str
    details: Mapping[str, str] | UnsetType = UNSET


class AnthropicFailure(Struct, frozen=True, tag_field="type", tag="error"):
    """The body of a failure."""

    error: AnthropicError


def failure_body(failure: BridgeError) -> bytes:
    """Return the body of a failure."""
    has_details = failure.reason is Reason.UNSUPPORTED and failure.param == "thread"
    details = _NO_THREADS if has_details else UNSET
    error = AnthropicError(_type_of(failure), str(failure), details)
    return msgspec.json.encode(AnthropicFailure(error))


def failure_event(failure: BridgeError) -> bytes:
    """Return the event that ends a stream that fails."""
    return event(failure_body(failure), "error")


def _type_of(failure: BridgeError) -> str:
    if failure.reason is Reason.UNAVAILABLE:
        return "overloaded_error"
    return _TYPES.get(failure.status, "invalid_request_error")
