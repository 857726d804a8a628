"""Failures in Anthropic's form.

The status stays that of HTTP: clients choose the class of an exception by it, and the SDK
repeats a request after 503 as it does after 529, which no registry of HTTP has. The type in
the body is the one that clients look for.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

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


def failure_body(failure: BridgeError) -> bytes:
    """Return the body of a failure."""
    error: dict[str, object] = {"type": _type_of(failure), "message": str(failure)}
    if failure.reason is Reason.UNSUPPORTED and failure.param == "thread":
        error["details"] = _NO_THREADS
    return msgspec.json.encode({"type": "error", "error": error})


def failure_event(failure: BridgeError) -> bytes:
    """Return the event that ends a stream that fails."""
    return event(failure_body(failure), "error")


def _type_of(failure: BridgeError) -> str:
    if failure.reason is Reason.UNAVAILABLE:
        return "overloaded_error"
    return _TYPES.get(failure.status, "invalid_request_error")
