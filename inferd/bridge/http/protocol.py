"""HTTP/1.1 as hypercorn and h11 have it, without what a proxy in front may read differently."""

import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import h11
import trio
from hypercorn.config import Config
from hypercorn.events import Closed
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.task_group import TaskGroup, _handle
from hypercorn.typing import (
    AppWrapper,
    ASGIReceiveEvent,
    ASGISendEvent,
    H11SendableEvent,
    Scope,
)

from inferd.bridge.apis import api_of
from inferd.bridge.http.endpoint import failure_headers
from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.limits.bridge import CLOSE_S

_HEAD_END: Final = b"\r\n\r\n"
_LF_ALONE: Final = re.compile(rb"(?<!\r)\n")
_MARKS_BYTES: Final = 4
"""Bytes of a header besides its name and value, and of a line besides its two words."""
_BAD_REQUEST: Final = 400
"""HTTP's number, as the next one."""
_HEAD_TOO_LARGE: Final = 431


class RequestParser(h11.Connection):
    """h11's server, which refuses heads whose lines end by LF alone.

    RFC 9112 allows to accept them (section 2.2); a proxy that does not may take such a line
    for a part of a value and pass it on, with the request that it hides.

    Args:
        max_head_bytes: of a line and headers that are not complete.
    """

    def __init__(self, max_head_bytes: int) -> None:
        super().__init__(h11.SERVER, max_incomplete_event_size=max_head_bytes)
        self._has_begun = False
        """Whether the lines of a head are being checked."""
        self._unchecked = b""
        """What has come of it since it was last checked, behind ``_n_checked`` bytes that
        were."""
        self._n_checked = 0

    def receive_data(self, data: bytes) -> None:
        """Take what has come; raises as h11's own."""
        super().receive_data(data)
        if self._has_begun:
            self._unchecked += data

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """Return the next event; raises and returns as h11's own.

        Raises:
            RemoteProtocolError: what was received is no request of HTTP/1.1.
        """
        if self.their_state is h11.IDLE:
            self._check_lines()
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._has_begun = False
        return event

    def _check_lines(self) -> None:
        """Check what has come of a head; each byte is looked at once."""
        if not self._has_begun:
            self._has_begun = True
            self._unchecked, _ = self.trailing_data
            self._n_checked = 0
        head, end, _ = self._unchecked.partition(_HEAD_END)
        if _LF_ALONE.search(head, self._n_checked):
            raise h11.RemoteProtocolError(
                "a line ends by LF alone", error_status_hint=_BAD_REQUEST
            )
        if not end:  # it may begin in what is kept
            self._unchecked = head[1 - len(_HEAD_END) :]
            self._n_checked = len(self._unchecked)


def head_bytes(request: h11.Request) -> int:
    """Count the bytes of a request's line and headers."""
    pairs = [(request.method, request.target), *request.headers]
    return sum(len(first) + len(last) + _MARKS_BYTES for first, last in pairs)


def without_upgrade(request: h11.Request) -> h11.Request:
    """Return a request that wants to be upgraded to nothing; pure."""
    headers = [pair for pair in request.headers if pair[0] != b"upgrade"]
    if len(headers) == len(request.headers):
        return request
    return h11.Request(
        method=request.method,
        target=request.target,
        headers=headers,
        http_version=request.http_version,
    )


def closing(response: h11.Response) -> h11.Response:
    """Return a response that ends the connection; pure."""
    others = [pair for pair in response.headers if pair[0] != b"connection"]
    return h11.Response(
        status_code=response.status_code, headers=[*others, (b"connection", b"close")]
    )


class PlainProtocol(H11Protocol):
    """HTTP/1.1 alone: upgrades are ignored, as a server may, to HTTP/2 and WebSockets."""

    is_sending_head = False
    """Whether what is sent now is the head of an answer, which the body follows at once."""

    async def _send_h11_event(self, event: H11SendableEvent) -> None:
        """Send what h11 makes of an event.

        An answer that is sent before the request's body has come ends the connection, and
        says so: a client that has read it may have sent its next request already.
        """
        self.is_sending_head = isinstance(event, h11.Response)
        has_come = self.connection.their_state is not h11.SEND_BODY
        if isinstance(event, h11.Response) and not has_come:
            event = closing(event)
        try:
            await super()._send_h11_event(event)
        finally:
            self.is_sending_head = False

    async def _check_protocol(self, event: h11.Request) -> None:
        """Accept the request as HTTP/1.1."""

    async def _create_stream(self, request: h11.Request) -> None:
        """Begin a request, whatever it wants to be upgraded to."""
        plain = without_upgrade(request)
        if head_bytes(plain) <= self.config.h11_max_incomplete_size:
            await super()._create_stream(plain)
            return
        await self._send_error_response(_HEAD_TOO_LARGE)  # it came in one piece
        await self.send(Closed())

    async def _send_error_response(self, status_code: int) -> None:
        """Refuse bytes that are not a request, in the form of the first API."""
        failure = BridgeError(Reason.INVALID_REQUEST, "no request of HTTP/1.1")
        if status_code == _HEAD_TOO_LARGE:
            most = self.config.h11_max_incomplete_size
            failure = BridgeError(
                Reason.TOO_LARGE, f"the line and headers have over {most} bytes"
            )
        await self.refuse(status_code, failure)

    async def refuse(self, status_code: int, failure: BridgeError) -> None:
        """Answer bytes that are not a whole request; the caller closes."""
        body = api_of("").error_body(failure)
        headers = [
            (b"content-type", b"application/json"),
            (b"x-content-type-options", b"nosniff"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
            *((k.encode(), v.encode()) for k, v in failure_headers(failure).items()),
        ]
        await self._send_h11_event(
            h11.Response(status_code=status_code, headers=headers)
        )
        await self._send_h11_event(h11.Data(data=body))
        await self._send_h11_event(h11.EndOfMessage())

    async def _close_stream(self) -> None:
        """Tell the application of the end, unless it takes nothing any more.

        Hypercorn waits for room in the application's queue, which there never is where it
        has answered without the body.
        """
        with trio.move_on_after(CLOSE_S):
            await super()._close_stream()
        self.stream = None


class AppTasks(TaskGroup):
    """Runs the application for each request, and passes it what comes of the body.

    Other tasks run only where one of both has to wait: with hypercorn's own they do for each
    part that is passed.
    """

    async def spawn_app(
        self,
        app: AppWrapper,
        config: Config,
        scope: Scope,
        send: Callable[[ASGISendEvent | None], Awaitable[None]],
    ) -> Callable[[ASGIReceiveEvent], Awaitable[None]]:
        """Start the application; return what takes the parts for it."""
        n_parts = config.max_app_queue_size
        put, taken = trio.open_memory_channel[ASGIReceiveEvent](n_parts)

        async def receive() -> ASGIReceiveEvent:
            with suppress(trio.WouldBlock):
                return taken.receive_nowait()
            return await taken.receive()

        async def pass_on(event: ASGIReceiveEvent) -> None:
            try:
                put.send_nowait(event)
            except trio.WouldBlock:
                await put.send(event)

        sync_spawn, call_soon = trio.to_thread.run_sync, trio.from_thread.run
        self.spawn(_handle, app, config, scope, receive, send, sync_spawn, call_soon)
        return pass_on
