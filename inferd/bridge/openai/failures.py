"""Failures in OpenAI's form."""

import msgspec
from msgspec import Struct

from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.bridge.translation.sse import event

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "invalid_request_error",
    405: "invalid_request_error",
    408: "invalid_request_error",
    409: "invalid_request_error",
    413: "invalid_request_error",
    415: "invalid_request_error",
    429: "rate_limit_error",
}


class OpenAiError(Struct, frozen=True):
    """What a failure says."""

    message: str
    type: str
    param: str | None
    """The field of the request that is at fault, if one is."""
    code: str


class OpenAiFailure(Struct, frozen=True):
    """The body of a failure."""

    error: OpenAiError


def failure_body(failure: BridgeError) -> bytes:
    """Return the body of a failure."""
    return msgspec.json.encode(OpenAiFailure(_error(failure)))


def failure_event(failure: BridgeError) -> bytes:
    """Return the event that ends a stream that fails."""
    return event(failure_body(failure))


def _error(failure: BridgeError) -> OpenAiError:
    kind = _TYPES.get(failure.status, "server_error")
    if failure.reason is Reason.QUOTA:
        kind = "insufficient_quota"
    return OpenAiError(str(failure), kind, failure.param, failure.reason.value)
