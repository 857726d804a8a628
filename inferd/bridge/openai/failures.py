"""Failures in OpenAI's form."""

import msgspec

from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.bridge.translation.sse import event

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "invalid_request_error",
    405: "invalid_request_error",
    408: "invalid_request_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
}


def failure_body(failure: BridgeError) -> bytes:
    """Return the body of a failure."""
    return msgspec.json.encode({"error": _fields(failure)})


def failure_event(failure: BridgeError) -> bytes:
    """Return the event that ends a stream that fails."""
    return event(failure_body(failure))


def _fields(failure: BridgeError) -> dict[str, object]:
    kind = _TYPES.get(failure.status, "server_error")
    if failure.reason is Reason.QUOTA:
        kind = "insufficient_quota"
    return {
        "message": str(failure),
        "type": kind,
        "param": failure.param,
        "code": failure.reason.value,
    }
