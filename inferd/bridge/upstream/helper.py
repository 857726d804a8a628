"""The helper's socket: a connection for each request, with one answer."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import trio

from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.bridge.upstream.failures import RETRY_UNAVAILABLE_S
from inferd.client.asynchronous import connect
from inferd.client.discovery import NoDaemonError
from inferd.client.exchange import ClientError
from inferd.errors import FrameTooLargeError
from inferd.limits.bridge import HELPER_FRAME_BYTES
from inferd.limits.connections import READ_BYTES
from inferd.wire.codec import DECODE_FAILURES
from inferd.wire.framing import LineSplitter
from inferd.wire.management import (
    HELPER_FRAMES,
    HELPER_SOCKET,
    FailureKind,
    HelperDone,
    HelperFailure,
    HelperFrame,
    HelperRequest,
    helper_line,
)

_REASONS: Final[Mapping[FailureKind, Reason]] = {
    "invalid_request": Reason.INVALID_REQUEST,
    "permission_denied": Reason.NOT_CONFIGURED,
    "not_allowed": Reason.FORBIDDEN,
    "busy": Reason.QUEUE_FULL,
    "too_large": Reason.TOO_LARGE,
    "no_space": Reason.NOT_DONE,
    "model_not_found": Reason.MODEL_NOT_FOUND,
    "unavailable": Reason.UNAVAILABLE,
    "failed": Reason.NOT_DONE,
    "internal": Reason.INTERNAL,
}
NO_HELPER: Final = (
    "the bridge manages models and the daemon through its helper, which does not answer: the "
    "operator starts it with `inferd bridge helper`, and allows in [bridge_helper] of the "
    "configuration what it does"
)


class HelperClient:
    """A client of the helper.

    Args:
        directory: of its socket, which is that of the daemon's; ``None`` for the default ones.
    """

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory

    async def ask(
        self, request: HelperRequest
    ) -> AsyncGenerator[Sequence[HelperFrame], None]:
        """Send a request; yield the frames of its answer, one at a time; use ``aclosing``.

        Raises:
            BridgeError: the helper refuses, does not answer to the end, or is not there.

        Cancellation: ends the request.
        """
        try:
            stream = await connect(HELPER_SOCKET, self._directory)
        except (NoDaemonError, ClientError, OSError) as error:
            raise BridgeError(Reason.NOT_CONFIGURED, NO_HELPER) from error
        async with stream:
            with suppress(trio.BrokenResourceError):  # it may have refused already
                await stream.send_all(helper_line(request))
            splitter = LineSplitter(HELPER_FRAME_BYTES)
            while data := await _received(stream):
                splitter.feed(data)
                while (frame := _next_frame(splitter)) is not None:
                    if isinstance(frame, HelperFailure):
                        raise failure_of_helper(frame)
                    yield [frame]
                    if isinstance(frame, HelperDone):
                        return
        raise BridgeError(
            Reason.UNAVAILABLE, "the helper ended before the answer was complete"
        )


async def _received(stream: trio.SocketStream) -> bytes:
    with suppress(trio.BrokenResourceError):
        return bytes(await stream.receive_some(READ_BYTES))
    return b""


def _next_frame(splitter: LineSplitter) -> HelperFrame | None:
    try:
        line = splitter.next_frame()
        return None if line is None else HELPER_FRAMES.decode(line)
    except (FrameTooLargeError, *DECODE_FAILURES) as error:
        text = "the answer of the helper could not be read"
        raise BridgeError(Reason.INTERNAL, text) from error


def failure_of_helper(frame: HelperFailure) -> BridgeError:
    """Return what a caller is told of a refusal of the helper."""
    is_named = frame.code == "model_not_found"
    after_s = frame.retry_after_s
    if after_s is None and frame.code == "unavailable":
        after_s = RETRY_UNAVAILABLE_S
    return BridgeError(
        _REASONS[frame.code],
        frame.message,
        param="model" if is_named else None,
        retry_after_s=after_s,
    )
