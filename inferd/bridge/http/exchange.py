"""One HTTP request and its answer, within bounds."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Protocol

import trio
from starlette.types import Receive, Scope, Send

from inferd.bridge.http.guard import content_length
from inferd.bridge.identity.caller import HttpCaller, HttpPeer
from inferd.bridge.identity.share import SharedLimit
from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.bridge.translation.question import SoundSource
from inferd.config.bridge import BridgeSettings
from inferd.limits.bridge import DISCARD_S, DISCARDED_BYTES


class HangUpError(Exception):
    """The client has closed the connection."""


class ChunkWriter(Protocol):
    """Sends a part of a body on its connection, where the answer has parts."""

    async def __call__(self, data: bytes, *, is_last: bool) -> bool:
        """Send a part; tell whether the answer has such."""


class HttpExchange:
    """A request, and the answer to it.

    Args:
        scope: of the request, as ASGI has it.
        receive: gives the parts of the body, and then the end of the connection.
        send: takes the parts of the answer.
        request_id: names it here and in the daemon.
        settings: the bounds.
        bodies: the bytes of all bodies, which callers share.
    """

    def __init__(  # noqa: PLR0913, PLR0915  # ASGI's three, and three of ours
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        *,
        request_id: str,
        settings: BridgeSettings,
        bodies: SharedLimit,
    ) -> None:
        self.request_id = request_id
        self.method = str(scope["method"])
        self.path = str(scope["path"])
        self.query = bytes(scope.get("query_string", b""))
        """What follows ``?`` in the address."""
        self.headers: list[tuple[bytes, bytes]] = [*scope["headers"]]
        peer = scope["state"]["peer"]
        assert isinstance(peer, HttpPeer)  # noqa: S101  # ``HttpConnection`` puts it there
        self.peer = peer
        self.route = ""
        """Of the request, for the log; empty if there is none."""
        self.caller: HttpCaller | None = None
        self.n_tokens = 0
        """Of the answer and its prompt."""
        self.status = 0
        """Of the answer, once it has begun."""
        self.error = ""
        """The code of the failure that it was answered with; empty for none."""
        self.extra_headers: dict[str, str] = {}
        """Headers of the answer, besides those of its kind."""
        self.began_at = trio.current_time()
        self._write: ChunkWriter | None = scope["state"].get("write")
        """Sends parts without the way through ASGI; ``None`` in tests."""
        self._receive = receive
        self._send = send
        self._settings = settings
        self._bodies = bodies
        self._held: list[tuple[SharedLimit, str, int]] = []
        self._is_read = False
        self._is_answered = False

    @property
    def has_begun(self) -> bool:
        """Whether the status line has been sent."""
        return self.status != 0

    @property
    def elapsed_ms(self) -> float:
        """Milliseconds since the head was read."""
        return (trio.current_time() - self.began_at) * 1000

    async def read_body(self) -> bytes:
        """Read the body.

        Raises:
            BridgeError: it is too large, or takes too long.
            HangUpError: the connection ended before it.
        """
        body = bytearray()
        await self.read_parts(
            body.extend,
            max_bytes=self._settings.max_body_bytes,
            limit_s=self._settings.body_s,
        )
        return bytes(body)

    async def read_line(self, max_bytes: int) -> tuple[bytes, bytes]:
        """Read the first line of a body that goes on while it is answered.

        The connection serves no request behind it.

        Returns:
            The line, and what has come behind it.

        Raises:
            BridgeError: it is too long, or takes too long.
            HangUpError: the connection ended before it.
        """
        self.extra_headers["connection"] = "close"
        body, end = bytearray(), -1
        with trio.move_on_after(self._settings.body_s) as scope:
            while end < 0 and not self._is_read:
                part = await self._next_part()
                end = part.find(b"\n")
                body += part
                _check_length(len(body), max_bytes)
        if scope.cancelled_caught:
            raise BridgeError(Reason.TIMEOUT, "the first line takes too long")
        line, _, rest = bytes(body).partition(b"\n")
        return line, rest

    async def read_parts(
        self, take: Callable[[bytes], None], *, max_bytes: int, limit_s: float
    ) -> None:
        """Read the body in the parts in which it comes.

        Args:
            take: is called with each.
            max_bytes: of all of them.
            limit_s: seconds that they may take.

        Raises:
            BridgeError: it is too large, takes too long, or ``take`` raised it.
            HangUpError: the connection ended before it.
        """
        # Where all of it is not taken, the client must not send a request behind it.
        self.extra_headers["connection"] = "close"
        stated = content_length(self.headers) or 0
        _check_length(stated, max_bytes)
        self._hold_body(stated)
        n_bytes, n_held = 0, stated
        with trio.move_on_after(limit_s) as scope:
            while not self._is_read:
                part = await self._next_part()
                n_bytes += len(part)
                _check_length(n_bytes, max_bytes)
                self._hold_body(n_bytes - n_held)
                n_held = max(n_held, n_bytes)
                take(part)
        if scope.cancelled_caught:
            raise BridgeError(Reason.TIMEOUT, f"the body took over {limit_s:g} s")
        del self.extra_headers["connection"]

    async def _next_part(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise HangUpError
        self._is_read = not message.get("more_body", False)
        return bytes(message.get("body", b""))

    def _hold_body(self, n_bytes: int) -> None:
        if n_bytes > 0 and not self.hold(self._bodies, n_bytes):
            raise BridgeError(
                Reason.QUEUE_FULL, "too many large requests at once", retry_after_s=1.0
            )

    def hold(self, limit: SharedLimit, n: int = 1) -> bool:
        """Take something for the caller until the end of the exchange; tell whether it could."""
        name = self.caller.principal if self.caller else ""
        if not limit.take(name, n):
            return False
        self._held.append((limit, name, n))
        return True

    @asynccontextmanager
    async def ended_by_hang_up(
        self, sound: SoundSource | None = None
    ) -> AsyncIterator[trio.Nursery]:
        """Cancel the block as soon as the client closes the connection.

        Yields a nursery for what runs beside the block; it is cancelled at its end.

        Args:
            sound: takes the rest of the body meanwhile.

        Raises:
            HangUpError: it did.
            BridgeError: the block raised it.
        """
        is_gone = False
        failure: BridgeError | None = None
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                nonlocal is_gone, failure
                failure = await self._failure_before_hang_up(sound)
                # else it is the end of the exchange
                is_gone = failure is None and not self._is_answered
                nursery.cancel_scope.cancel()

            nursery.start_soon(watch)
            try:
                yield nursery
            except BridgeError as error:  # a nursery would make a group of it
                failure = error
            nursery.cancel_scope.cancel()
        if is_gone:
            raise HangUpError
        if failure is not None:
            raise failure

    async def _failure_before_hang_up(
        self, sound: SoundSource | None
    ) -> BridgeError | None:
        """Pass the rest of the body on and wait for the hang-up; return what is wrong in it."""
        try:
            if sound is not None:
                await sound.take(b"", is_last=self._is_read)
            while sound is not None and not self._is_read:
                part = await self._next_part()
                await sound.take(part, is_last=self._is_read)
            while (await self._receive())["type"] != "http.disconnect":
                pass
        except HangUpError:
            pass
        except BridgeError as error:
            return error
        return None

    # --- the answer -------------------------------------------------------------------

    async def respond(
        self,
        status: int,
        body: bytes,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Send a whole answer."""
        length = {"content-length": str(len(body))}
        await self._begin(status, content_type, {**length, **(headers or {})})
        await self._send_last(body)

    async def begin_stream(self, content_type: str) -> None:
        """Send the head of a streamed answer."""
        await self._begin(200, content_type, {"cache-control": "no-store"})

    async def write(self, data: bytes, *, is_last: bool = False) -> None:
        """Send a part of a streamed answer; ``end_stream`` follows the last one at once."""
        if self._write is None or not await self._write(data, is_last=is_last):
            await self._send(
                {"type": "http.response.body", "body": data, "more_body": True}
            )

    async def end_stream(self) -> None:
        """End a streamed answer."""
        await self._send_last(b"")

    async def _send_last(self, data: bytes) -> None:
        self._is_answered = True
        await self._send({"type": "http.response.body", "body": data})

    async def _begin(
        self, status: int, content_type: str, headers: Mapping[str, str]
    ) -> None:
        self.status = status
        fields = {
            "content-type": content_type,
            "x-content-type-options": "nosniff",
            "x-request-id": self.request_id,
            "request-id": self.request_id,  # as Anthropic's clients look for it
            **self.extra_headers,
            **headers,
        }
        pairs = [
            (name.encode(), value.encode("latin-1")) for name, value in fields.items()
        ]
        await self._send(
            {"type": "http.response.start", "status": status, "headers": pairs}
        )

    async def finish(self) -> None:
        """Give back what is held; take the rest of a body that was not wanted."""
        for limit, name, n in self._held:
            limit.give_back(name, n)
        self._held.clear()
        n_discarded = 0
        with trio.move_on_after(DISCARD_S):
            try:
                while not self._is_read and n_discarded < DISCARDED_BYTES:
                    n_discarded += len(await self._next_part())
            except HangUpError:
                pass


def _check_length(n_bytes: int, max_bytes: int) -> None:
    if n_bytes > max_bytes:
        raise BridgeError(Reason.TOO_LARGE, f"the body has over {max_bytes} bytes")
