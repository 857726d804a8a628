"""The routes by which the bridge tells of itself, of the daemon, and of a caller's own requests."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import msgspec
from msgspec import Struct

from inferd import __version__
from inferd.bridge.http.endpoint import Handler
from inferd.bridge.http.exchange import HttpExchange
from inferd.bridge.identity.caller import HttpCaller
from inferd.bridge.metrics import CONTENT_TYPE, BridgeMetrics
from inferd.bridge.openapi.route import JSON, HttpRoute
from inferd.bridge.openapi.routes import ABOUT_THE_BRIDGE, own_route
from inferd.bridge.translation.api import Api
from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.bridge.upstream.daemon import DaemonClient
from inferd.bridge.upstream.own_requests import OwnRequest


class OwnStatus(Struct, frozen=True, kw_only=True):
    """What a caller may know of the machine: its own part."""

    name: str
    """Of the token; ``local`` for the bridge's own user."""
    scopes: Sequence[str]
    requests: Sequence[OwnRequest]
    """Those with the daemon, the running ones first."""
    requests_at_once: int
    """Requests that this caller may have with the daemon at once."""
    tokens: int
    """Tokens of prompts and answers of this caller since the bridge began."""
    all_tokens: int
    """Those of all callers."""


class OwnRoutes:
    """The routes that no API has.

    Args:
        apis: that are served.
        daemon: answers requests.
        metrics: of the bridge.
    """

    def __init__(
        self, apis: Sequence[Api], daemon: DaemonClient, metrics: BridgeMetrics
    ) -> None:
        self._apis, self._daemon, self._metrics = apis, daemon, metrics

    def __iter__(self) -> Iterator[tuple[HttpRoute, Handler]]:
        """Give each route with its handler."""
        own = partial(own_route, self._apis)
        yield own("/health", "Tell that the bridge runs"), self._health
        yield (
            own(
                "/ready",
                "Tell whether the daemon answers",
                reasons=(Reason.UNAVAILABLE,),
            ),
            self._ready,
        )
        yield (
            own(
                "/metrics",
                "Return the metrics of the bridge",
                scopes=ABOUT_THE_BRIDGE,
                answers={CONTENT_TYPE.partition(";")[0]: str},
            ),
            self._tell_metrics,
        )
        info = own("/server_info", "Describe the bridge", scopes=ABOUT_THE_BRIDGE)
        yield info, self._server_info
        yield (
            own(
                "/status",
                "Tell a caller's own requests and share",
                scopes=("inference", "admin"),
                answers={JSON: OwnStatus},
                reasons=(Reason.UNAVAILABLE,),
            ),
            self._status,
        )

    async def _health(self, exchange: HttpExchange, _: Mapping[str, str]) -> None:
        await exchange.respond(200, b'{"status":"ok"}')

    async def _ready(self, exchange: HttpExchange, _: Mapping[str, str]) -> None:
        if not await self._daemon.is_up():
            raise BridgeError(
                Reason.UNAVAILABLE, "the daemon is not ready", retry_after_s=1.0
            )
        await exchange.respond(200, b'{"status":"ready"}')

    async def _tell_metrics(self, exchange: HttpExchange, _: Mapping[str, str]) -> None:
        """Answer with the metrics; who asks what is for those who manage the bridge."""
        is_admin = "admin" in _caller(exchange).scopes
        self._metrics.daemon_seen(is_up=await self._daemon.is_up())
        text = self._metrics.text(by_principal=is_admin)
        await exchange.respond(200, text, CONTENT_TYPE)

    async def _server_info(self, exchange: HttpExchange, _: Mapping[str, str]) -> None:
        fields = {
            "name": "inferd-bridge",
            "version": __version__,
            "apis": [api.name for api in self._apis],
            "models": [model.name for model in await self._daemon.models()],
            "max_requests": self._daemon.places.limit,
        }
        await exchange.respond(200, msgspec.json.encode(fields))

    async def _status(self, exchange: HttpExchange, _: Mapping[str, str]) -> None:
        caller = _caller(exchange)
        own, of_all = self._metrics.tokens_of(caller.principal)
        status = OwnStatus(
            name=caller.principal,
            scopes=caller.scopes,
            requests=await self._daemon.own.of(caller.principal),
            requests_at_once=self._daemon.places.share,
            tokens=own,
            all_tokens=of_all,
        )
        await exchange.respond(200, msgspec.json.encode(status))


def _caller(exchange: HttpExchange) -> HttpCaller:
    assert exchange.caller is not None  # noqa: S101  # the route has a scope
    return exchange.caller
