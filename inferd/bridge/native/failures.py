"""Failures as error frames of the protocol."""

from collections.abc import Mapping
from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.client.core.failures import RequestFailedError
from inferd.client.frames import ClientErrorFrame
from inferd.errors import ErrorCode
from inferd.wire.codec import encode

_CODES: Final[Mapping[Reason, ErrorCode]] = {
    Reason.UNAUTHENTICATED: ErrorCode.PERMISSION_DENIED,
    Reason.FORBIDDEN: ErrorCode.PERMISSION_DENIED,
    Reason.MODEL_NOT_FOUND: ErrorCode.MODEL_NOT_FOUND,
    Reason.TOO_LARGE: ErrorCode.FRAME_TOO_LARGE,
    Reason.QUEUE_FULL: ErrorCode.QUEUE_FULL,
    Reason.TOO_MANY_FAILURES: ErrorCode.QUEUE_FULL,
    Reason.QUOTA: ErrorCode.QUEUE_FULL,
    Reason.INTERNAL: ErrorCode.INTERNAL,
    Reason.NOT_CONFIGURED: ErrorCode.BACKEND_UNAVAILABLE,
    Reason.NOT_DONE: ErrorCode.BACKEND_UNAVAILABLE,
    Reason.UNAVAILABLE: ErrorCode.BACKEND_UNAVAILABLE,
    Reason.CANCELLED: ErrorCode.CANCELLED,
    Reason.DEADLINE: ErrorCode.DEADLINE_EXCEEDED,
}
"""The protocol's code for each failure of the bridge; the others are ``invalid_request``."""
_MS_PER_S: Final = 1000


def error_frame(failure: BridgeError, request_id: str = "") -> ClientErrorFrame:
    """Return the error frame of a failure: the daemon's own, if it refused the request.

    Args:
        failure: of the request.
        request_id: as the caller named it; empty if that was not read.
    """
    if isinstance(failure.__cause__, RequestFailedError):
        return replace(failure.__cause__.frame, id=request_id)
    pause_s = failure.retry_after_s
    return ClientErrorFrame(
        id=request_id,
        code=_CODES.get(failure.reason, ErrorCode.INVALID_REQUEST).value,
        message=str(failure),
        retry_after_ms=UNSET if pause_s is None else round(pause_s * _MS_PER_S),
    )


def failure_line(failure: BridgeError) -> bytes:
    """Return the body of a request that fails before its answer has begun."""
    return encode(error_frame(failure))
