"""The application: routes, who may use them, and failures in the form of each API."""

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.routing import Route, Router
from starlette.types import Receive, Scope as AsgiScope, Send

from inferd import __version__
from inferd.bridge.access_log import BridgeLog, kind_of
from inferd.bridge.apis import APIS, api_of
from inferd.bridge.http.answer import answer
from inferd.bridge.http.chats import ChatRoutes, ChatSetUp
from inferd.bridge.http.endpoint import (
    EXCHANGE,
    Handler,
    RouteEndpoint,
    failure_headers,
    routing_failure,
)
from inferd.bridge.http.exchange import HangUpError, HttpExchange
from inferd.bridge.http.guard import (
    HeadRules,
    cors_headers,
    credential_of,
    preflight_headers,
)
from inferd.bridge.http.own import OwnRoutes
from inferd.bridge.http.page import PageRoutes
from inferd.bridge.http.questions import lowering, read_question
from inferd.bridge.identity.caller import Callers, HttpCaller
from inferd.bridge.identity.share import SharedLimit
from inferd.bridge.identity.token import Scope
from inferd.bridge.identity.token_file import TokenFileError
from inferd.bridge.metrics import BridgeMetrics
from inferd.bridge.openapi.document import describe
from inferd.bridge.openapi.route import HttpRoute
from inferd.bridge.openapi.routes import (
    lookup_routes,
    managed_routes,
    model_routes,
    operation_routes,
    own_route,
)
from inferd.bridge.translation.api import Api, FormOperation, Lookup, Operation
from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.bridge.translation.managed import ManagedOperation
from inferd.bridge.translation.query import read_query
from inferd.bridge.upstream.daemon import DaemonClient
from inferd.bridge.upstream.helper import HelperClient
from inferd.config.bridge import BridgeSettings
from inferd.wire.blocks import BlocksRequest

UNENFORCED_HEADER: Final = "x-inferd-unenforced"
"""Names what a request asks for and an answer need not keep."""


class BridgeApp:
    """The ASGI application.

    Args:
        daemon: answers requests.
        callers: recognises who asks.
        rules: for the heads of requests.
        settings: the bounds.
        log: gets a line for each request.
        helper: answers requests to manage models; ``None`` for the one of this user.
        chats: answers those about chats; ``None`` where none are kept.
        metrics: counts requests and tokens; ``None`` for new ones.
        apis: that are served.
    """

    def __init__(  # noqa: PLR0913  # what the application is made of
        self,
        daemon: DaemonClient,
        callers: Callers,
        rules: HeadRules,
        settings: BridgeSettings,
        log: BridgeLog,
        *,
        helper: HelperClient | None = None,
        chats: ChatRoutes | None = None,
        metrics: BridgeMetrics | None = None,
        apis: Sequence[Api] = APIS,
    ) -> None:
        self._daemon = daemon
        self._chats = chats or ChatRoutes(ChatSetUp())
        self._helper = helper or HelperClient(None)
        self._callers, self._rules = callers, rules
        self._settings, self._log = settings, log
        self._apis = apis
        self._bodies = SharedLimit(
            settings.max_bodies_bytes,
            least=max(settings.max_body_bytes, settings.max_audio_bytes),
        )
        self._in_progress = SharedLimit(settings.max_connections)
        """Requests that are received or answered: a connection has one at a time."""
        self._began_s = int(time.time())
        self.metrics = metrics or BridgeMetrics()
        handlers = [*self._routes()]
        self.routes = [route for route, _ in handlers]
        """All routes, as the router and the description have them."""
        endpoints = [self._endpoint(*each) for each in handlers]
        self._router = Router(routes=endpoints, redirect_slashes=False)

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        exchange = HttpExchange(
            scope,
            receive,
            send,
            request_id=f"req_{secrets.token_hex(12)}",
            settings=self._settings,
            bodies=self._bodies,
        )
        scope[EXCHANGE] = exchange
        scope["app"] = self  # has the router raise where there is no route
        try:
            await self._answer(exchange, scope, receive, send)
        finally:
            self._note(exchange)
            with suppress(HangUpError):
                await exchange.finish()

    async def _answer(
        self, exchange: HttpExchange, scope: AsgiScope, receive: Receive, send: Send
    ) -> None:
        """Answer a request, with a failure if there is no other answer."""
        try:
            origin = self._check_head(exchange)
            exchange.extra_headers.update(cors_headers(origin))
            if origin and exchange.method == "OPTIONS":
                await exchange.respond(200, b"", headers=preflight_headers(origin))
                return
            await self._router(scope, receive, send)
        except HangUpError:
            exchange.status = 0
        except BridgeError as error:
            await self._fail(exchange, error)
        except HTTPException as error:
            failure = routing_failure(error, scope, self._router.routes)
            await self._fail(exchange, failure)
        except Exception as error:  # noqa: BLE001  # a bug: told without its text
            self._log.write(
                "error",
                "http_request.failed",
                request_id=exchange.request_id,
                route=exchange.route,
                error=kind_of(error),
            )
            failure = BridgeError(
                Reason.INTERNAL, f"a bug, logged as {exchange.request_id}"
            )
            await self._fail(exchange, failure)

    def _check_head(self, exchange: HttpExchange) -> str:
        """Return the page's origin, as the rules for heads do.

        Raises:
            BridgeError: the head is refused, and the connection with it: what follows may be
                a body to a proxy, and a request to the parser.
        """
        try:
            return self._rules.check(
                exchange.headers,
                is_unix=exchange.peer.is_unix,
                is_public=exchange.path == "/",
            )
        except BridgeError:
            exchange.extra_headers["connection"] = "close"
            raise

    async def _fail(self, exchange: HttpExchange, failure: BridgeError) -> None:
        exchange.error = failure.reason.value
        if isinstance(failure.__cause__, TokenFileError):
            reason = str(failure.__cause__)
            self._log.write("error", "bridge.tokens_unreadable", reason=reason)
        if exchange.has_begun:
            return
        body = self._api_for(exchange).error_body(failure)
        await exchange.respond(failure.status, body, headers=failure_headers(failure))

    def _api_for(self, exchange: HttpExchange) -> Api:
        names = {name.decode("latin-1").lower() for name, _ in exchange.headers}
        return api_of(exchange.path, names, self._apis)

    def _note(self, exchange: HttpExchange) -> None:
        """Log and count a request."""
        caller = exchange.caller
        elapsed_ms = exchange.elapsed_ms
        self._log.write(
            "info",
            "http_request.done" if exchange.status else "http_request.hung_up",
            request_id=exchange.request_id,
            method=exchange.method if exchange.route else None,
            route=exchange.route or None,
            status=exchange.status or None,
            error=exchange.error or None,
            principal=caller.principal if caller else None,
            peer_uid=exchange.peer.uid,
            tokens=exchange.n_tokens or None,
            ms=round(elapsed_ms, 1),
        )
        self.metrics.request_ended(
            exchange.route,
            exchange.status,
            elapsed_ms / 1000,
            caller.principal if caller else "",
        )
        if exchange.error:
            self.metrics.request_failed(exchange.error)

    # --- routes -----------------------------------------------------------------------

    def _routes(self) -> Iterator[tuple[HttpRoute, Handler]]:
        yield from PageRoutes(self._apis)
        yield from OwnRoutes(self._apis, self._daemon, self.metrics)
        yield (
            own_route(self._apis, "/openapi.json", "Describe all routes"),
            self._describe,
        )
        for api in self._apis:
            yield from self._routes_of(api)

    def _routes_of(self, api: Api) -> Iterator[tuple[HttpRoute, Handler]]:
        for route, operation in operation_routes(api):
            yield route, partial(self._ask, operation)
        for route, lookup in lookup_routes(api):
            yield route, partial(self._look_up, lookup)
        for route, managed in managed_routes(api):
            yield route, partial(self._manage, managed)
        yield from self._chats.handlers(api)
        for listed, shown in model_routes(api, self._apis):
            yield listed, self._list_models
            yield shown, self._show_model

    def _endpoint(self, route: HttpRoute, handler: Handler) -> Route:
        endpoint = RouteEndpoint(route, handler, self._identify)
        return Route(route.path, endpoint, methods=[route.method])

    def _identify(self, exchange: HttpExchange, scopes: Sequence[Scope]) -> None:
        """Recognise who asks, before the body is read.

        Raises:
            BridgeError: nobody who may, or who has too many requests already.
        """
        credential = credential_of(exchange.headers)
        caller = self._callers.identify(credential, exchange.peer)
        exchange.caller = caller
        exchange.peer.principal = caller.principal
        self._callers.check_scopes(caller, scopes)
        if not exchange.hold(self._in_progress):
            exchange.extra_headers["connection"] = "close"
            raise BridgeError(
                Reason.QUEUE_FULL,
                f"one token or user has {self._in_progress.share} connections with requests "
                "at once",
                retry_after_s=1.0,
            )

    async def _ask(
        self,
        operation: Operation | FormOperation,
        exchange: HttpExchange,
        _: Mapping[str, str],
    ) -> None:
        caller = exchange.caller
        assert caller is not None  # noqa: S101  # the route has a scope
        question, n_most = await read_question(operation, exchange, self._settings)
        if question.unenforced:
            exchange.extra_headers[UNENFORCED_HEADER] = question.unenforced
        cost = question.answer
        try:
            with self._callers.spending(
                caller,
                n_most,
                lambda: cost.n_tokens,
                is_told_late=not isinstance(question.request, BlocksRequest),
            ) as lower:
                exchange.extra_headers.update(self._limit_headers(caller))
                async with exchange.ended_by_hang_up(question.sound) as beside:
                    frames = self._daemon.ask(question, caller.principal)
                    if caller.quota is not None:
                        frames = lowering(frames, question, lower)
                    await answer(exchange, question, frames, operation.stream, beside)
        finally:
            exchange.n_tokens = cost.n_tokens
            self.metrics.tokens_used(exchange.route, cost.n_tokens, caller.principal)

    async def _manage(
        self,
        operation: ManagedOperation,
        exchange: HttpExchange,
        named: Mapping[str, str],
    ) -> None:
        """Have the helper answer a request."""
        caller = exchange.caller
        assert caller is not None  # noqa: S101  # the route has a scope
        body = await exchange.read_body() if operation.table is not None else b""
        question = operation.ask(body, named, caller.principal)
        async with exchange.ended_by_hang_up() as beside:
            frames = self._helper.ask(question.request)
            await answer(exchange, question, frames, operation.stream, beside)

    def _limit_headers(self, caller: HttpCaller) -> dict[str, str]:
        """Return what is left for a caller once this request is counted.

        The places are the bridge's: how many the daemon's queue has left, nobody is told
        before it is full.
        """
        places = self._daemon.places
        n_left = max(0, places.left_for(caller.principal) - 1)
        return {
            "x-ratelimit-limit-requests": str(places.share),
            "x-ratelimit-remaining-requests": str(n_left),
            **self._callers.quota_headers(caller),
        }

    async def _list_models(self, exchange: HttpExchange, _: Mapping[str, str]) -> None:
        api = self._api_for(exchange)
        assert api.model_list is not None  # noqa: S101  # each API with models has one
        models = await self._daemon.models()
        body = api.model_list(models, self._began_s, exchange.query)
        await exchange.respond(200, body)

    async def _show_model(
        self, exchange: HttpExchange, path: Mapping[str, str]
    ) -> None:
        api = self._api_for(exchange)
        assert api.model_entry is not None  # noqa: S101  # each API with models has one
        read_query(exchange.query, api.query.table, api.query.kind)
        models = await self._daemon.models()
        named = [each for each in models if each.name == path["model"]]
        if not named:
            text = "no model of that name is listed"
            raise BridgeError(Reason.MODEL_NOT_FOUND, text, param="model")
        await exchange.respond(200, api.model_entry(named[0], self._began_s))

    async def _describe(self, exchange: HttpExchange, _: Mapping[str, str]) -> None:
        await exchange.respond(200, self._description)

    @cached_property
    def _description(self) -> bytes:
        return msgspec.json.encode(describe(self.routes, __version__))

    async def _look_up(
        self, lookup: Lookup, exchange: HttpExchange, _: Mapping[str, str]
    ) -> None:
        body = b"" if lookup.table is None else await exchange.read_body()
        models = await self._daemon.models() if lookup.asks_models else []
        await exchange.respond(200, lookup.answer(body, models, self._began_s))
