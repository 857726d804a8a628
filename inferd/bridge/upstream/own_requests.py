"""Which requests of a caller wait or run in the daemon, by the daemon's word."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import trio
from msgspec import UNSET, Struct

from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.client.asynchronous import command
from inferd.client.discovery import NoDaemonError
from inferd.client.exchange import ClientError
from inferd.limits.bridge import (
    MAX_TOLD_REQUESTS,
    OWN_REQUESTS_KEPT_S,
    OWN_REQUESTS_S,
)
from inferd.wire.commands import Command, RequestInfo


class OwnRequest(Struct, frozen=True, kw_only=True):
    """A request of a caller."""

    phase: str
    """``queued`` or ``running``."""
    age_ms: float
    """Milliseconds since it arrived at the daemon."""
    model: str | None = None
    """The backend, if it is known."""
    position: int | None = None
    """In the queue, 1 for the next to run."""
    output_tokens: int
    """Tokens generated so far."""


class OwnRequests:
    """Knows whose each request is that the bridge has sent.

    Args:
        directory: of the daemon's sockets; ``None`` for the default ones.

    Bounds:
        Memory: an entry for each request that is with the daemon.
    """

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._owners: dict[str, str] = {}
        self._asking = trio.Lock()
        self._told: tuple[float, Sequence[RequestInfo]] = (float("-inf"), ())
        """The latest reply, and when it came."""

    @contextmanager
    def noted(self, request_id: str, principal: str) -> Iterator[None]:
        """Remember whose a request is while inside."""
        self._owners[request_id] = principal
        try:
            yield
        finally:
            self._owners.pop(request_id, None)

    async def of(self, principal: str) -> list[OwnRequest]:
        """Ask the daemon for the requests of a caller, those that run first.

        Raises:
            BridgeError: the daemon does not tell the bridge.

        Bounds: ``MAX_TOLD_REQUESTS``.
        """
        if principal not in self._owners.values():
            return []
        own = [
            _own_request(each)
            for each in await self._listed()
            if self._owners.get(each.id) == principal
        ]
        own.sort(key=lambda each: (each.phase == "queued", -each.age_ms))
        return own[:MAX_TOLD_REQUESTS]

    async def _listed(self) -> Sequence[RequestInfo]:
        """Ask once for all who look at the same moment: the daemon has few admin connections."""
        async with self._asking:
            now = trio.current_time()
            if now - self._told[0] >= OWN_REQUESTS_KEPT_S:
                self._told = (now, await self._ask())
            return self._told[1]

    async def _ask(self) -> Sequence[RequestInfo]:
        text = "the daemon does not tell the bridge which requests wait"
        try:
            with trio.fail_after(OWN_REQUESTS_S):
                reply = await command(Command(command="requests"), self._directory)
        except (NoDaemonError, ClientError, OSError, trio.TooSlowError) as error:
            raise BridgeError(Reason.UNAVAILABLE, text, retry_after_s=1.0) from error
        return () if reply.requests is UNSET else reply.requests


def _own_request(info: RequestInfo) -> OwnRequest:
    return OwnRequest(
        phase=info.phase,
        age_ms=info.age_ms,
        model=None if info.backend is UNSET else info.backend,
        position=None if info.position is UNSET else info.position,
        output_tokens=info.output_tokens,
    )
