"""The application: routes, who may use them, and failures in the form of each API."""

import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
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
from inferd.bridge.http.exchange import HangUpError, HttpExchange
from inferd.bridge.http.guard import (
    HeadRules,
    cors_headers,
    credential_of,
    preflight_headers,
)
from inferd.bridge.http.questions import read_question
from inferd.bridge.identity.caller import Callers, HttpCaller
from inferd.bridge.identity.share import SharedLimit
from inferd.bridge.identity.token import Scope
from inferd.bridge.metrics import CONTENT_TYPE, BridgeMetrics
from inferd.bridge.openapi.document import describe
from inferd.bridge.openapi.route import ANY_OBJECT, JSON, HttpRoute
from inferd.bridge.translation.api import Api, FormOperation, Operation
from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.bridge.upstream.daemon import DaemonClient
from inferd.config.bridge import BridgeSettings

EXCHANGE: Final = "inferd.exchange"
"""Key of a scope under which routes find the exchange."""
UNENFORCED_HEADER: Final = "x-inferd-unenforced"
"""Names what a request asks for and an answer need not keep."""
_OF_THE_DAEMON: Final = (
    Reason.UNKNOWN_FIELD,
    Reason.UNSUPPORTED,
    Reason.CONTEXT_OVERFLOW,
    Reason.MODEL_NOT_FOUND,
    Reason.CANCELLED,
    Reason.DEADLINE,
)
"""Why the daemon or a translation may refuse a request."""
DEPTH_HEADER: Final = "x-inferd-queue-depth"
"""The requests that wait in the daemon, where its queue is full."""
Handler = Callable[[HttpExchange, Mapping[str, str]], Awaitable[None]]


class BridgeApp:
    """The ASGI application.

    Args:
        daemon: answers requests.
        callers: recognises who asks.
        rules: for the heads of requests.
        settings: the bounds.
        log: gets a line for each request.
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
        apis: Sequence[Api] = APIS,
    ) -> None:
        self._daemon = daemon
        self._callers = callers
        self._rules = rules
        self._settings = settings
        self._log = log
        self._apis = apis
        self._bodies = SharedLimit(
            settings.max_bodies_bytes,
            least=max(settings.max_body_bytes, settings.max_audio_bytes),
        )
        self._in_progress = SharedLimit(settings.max_connections)
        """Requests that are received or answered: a connection has one at a time."""
        self._began_s = int(time.time())
        self.metrics = BridgeMetrics()
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
            await self._fail(exchange, _routing_failure(error))
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
            return self._rules.check(exchange.headers, is_unix=exchange.peer.is_unix)
        except BridgeError:
            exchange.extra_headers["connection"] = "close"
            raise

    async def _fail(self, exchange: HttpExchange, failure: BridgeError) -> None:
        exchange.error = failure.reason.value
        if exchange.has_begun:
            return
        headers: dict[str, str] = {}
        if failure.queue_depth is not None:
            headers[DEPTH_HEADER] = str(failure.queue_depth)
        if failure.retry_after_s is not None:
            headers["retry-after"] = str(
                max(1, -(-int(failure.retry_after_s * 10) // 10))
            )
        if failure.reason is Reason.UNAUTHENTICATED:
            headers["www-authenticate"] = "Bearer"
        if failure.allow:
            headers["allow"] = failure.allow
        body = self._api_for(exchange).error_body(failure)
        await exchange.respond(failure.status, body, headers=headers)

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
        self.metrics.request_ended(exchange.route, exchange.status, elapsed_ms / 1000)
        if exchange.error:
            self.metrics.request_failed(exchange.error)

    # --- routes -----------------------------------------------------------------------

    def _routes(self) -> Iterator[tuple[HttpRoute, Handler]]:
        yield self._own("/health", "Tell that the bridge runs"), self._health
        yield (
            self._own(
                "/ready",
                "Tell whether the daemon answers",
                reasons=(Reason.UNAVAILABLE,),
            ),
            self._ready,
        )
        yield self._own("/openapi.json", "Describe all routes"), self._describe
        yield (
            self._own(
                "/metrics",
                "Return the metrics of the bridge",
                scope="inference",
                answers={CONTENT_TYPE.partition(";")[0]: str},
            ),
            self._metrics,
        )
        yield (
            self._own("/server_info", "Describe the bridge", scope="inference"),
            self._server_info,
        )
        for api in self._apis:
            yield from self._routes_of(api)

    def _routes_of(self, api: Api) -> Iterator[tuple[HttpRoute, Handler]]:
        for operation in api.operations:
            for path in (operation.path, *operation.also):
                route = HttpRoute(
                    path=path,
                    name=operation.path,
                    method="POST",
                    summary=f"Answer a request of the API {api.name}",
                    scope="inference",
                    apis=(api,),
                    operation=operation,
                    reasons=_OF_THE_DAEMON,
                )
                yield route, partial(self._ask, operation)
        name, below = api.models_path, "/{model:path}"
        for path in filter(None, (name, *api.models_also)):
            forms = self._forms(path)
            listed = self._own(path, "List the models", scope="inference", apis=forms)
            yield replace(listed, name=name), self._list_models
            shown = self._own(
                path + below,
                "Describe a model",
                scope="inference",
                apis=forms,
                reasons=(Reason.MODEL_NOT_FOUND,),
            )
            yield replace(shown, name=name + below), self._show_model

    def _forms(self, path: str) -> tuple[Api, ...]:
        """List the APIs in whose form a path may be answered: a header may choose."""
        found = [api_of(path, (), self._apis)]
        found += [api for api in self._apis if api.own_header]
        return tuple({api.name: api for api in found}.values())

    def _own(  # noqa: PLR0913  # what a route may have
        self,
        path: str,
        summary: str,
        *,
        scope: Scope | None = None,
        apis: tuple[Api, ...] = (),
        answers: Mapping[str, object] | None = None,
        reasons: tuple[Reason, ...] = (),
    ) -> HttpRoute:
        """Make the record of a route that is not an operation's."""
        return HttpRoute(
            path=path,
            method="GET",
            summary=summary,
            scope=scope,
            apis=apis or self._forms(path),
            answers=answers or {JSON: ANY_OBJECT},
            reasons=reasons,
        )

    def _endpoint(self, route: HttpRoute, handler: Handler) -> Route:
        endpoint = _RouteEndpoint(route, handler, self._identify)
        return Route(route.path, endpoint, methods=[route.method])

    async def _identify(self, exchange: HttpExchange, scope: Scope) -> None:
        """Recognise who asks, before the body is read.

        Raises:
            BridgeError: nobody who may, or who has too many requests already.
        """
        credential = credential_of(exchange.headers)
        caller = await self._callers.identify(credential, exchange.peer)
        exchange.caller = caller
        exchange.peer.principal = caller.principal
        self._callers.check_scope(caller, scope)
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
            with self._callers.spending(caller, n_most, lambda: cost.n_tokens):
                exchange.extra_headers.update(self._limit_headers(caller))
                async with exchange.ended_by_hang_up():
                    await answer(
                        exchange,
                        question,
                        self._daemon,
                        caller.principal,
                        operation.stream,
                    )
        finally:
            exchange.n_tokens = cost.n_tokens
            self.metrics.tokens_used(exchange.route, cost.n_tokens)

    def _limit_headers(self, caller: HttpCaller) -> dict[str, str]:
        """Return what is left for a caller once this request is counted.

        The places are the bridge's: how many the daemon's queue has left, nobody is told
        before it is full.
        """
        places = self._daemon.places
        return {
            "x-ratelimit-limit-requests": str(places.share),
            "x-ratelimit-remaining-requests": str(
                max(0, places.left_for(caller.principal) - 1)
            ),
            **self._callers.quota_headers(caller),
        }

    async def _list_models(self, exchange: HttpExchange, _: Mapping[str, str]) -> None:
        api = self._api_for(exchange)
        assert api.model_list is not None  # noqa: S101  # each API with models has one
        models = await self._daemon.models()
        await exchange.respond(200, api.model_list(models, self._began_s))

    async def _show_model(
        self, exchange: HttpExchange, path: Mapping[str, str]
    ) -> None:
        api = self._api_for(exchange)
        assert api.model_entry is not None  # noqa: S101  # each API with models has one
        for model in await self._daemon.models():
            if model.name == path["model"]:
                await exchange.respond(200, api.model_entry(model, self._began_s))
                return
        raise BridgeError(
            Reason.MODEL_NOT_FOUND, "no model of that name is listed", param="model"
        )

    async def _describe(self, exchange: HttpExchange, _: Mapping[str, str]) -> None:
        await exchange.respond(200, self._description)

    @cached_property
    def _description(self) -> bytes:
        return msgspec.json.encode(describe(self.routes, __version__))

    async def _health(self, exchange: HttpExchange, _: Mapping[str, str]) -> None:
        await exchange.respond(200, b'{"status":"ok"}')

    async def _ready(self, exchange: HttpExchange, _: Mapping[str, str]) -> None:
        if not await self._daemon.is_up():
            raise BridgeError(
                Reason.UNAVAILABLE, "the daemon is not ready", retry_after_s=1.0
            )
        await exchange.respond(200, b'{"status":"ready"}')

    async def _metrics(self, exchange: HttpExchange, _: Mapping[str, str]) -> None:
        await exchange.respond(200, self.metrics.text(), CONTENT_TYPE)

    async def _server_info(self, exchange: HttpExchange, _: Mapping[str, str]) -> None:
        fields = {
            "name": "inferd-bridge",
            "version": __version__,
            "apis": [api.name for api in self._apis],
            "models": [model.name for model in await self._daemon.models()],
            "max_requests": self._daemon.places.limit,
        }
        await exchange.respond(200, msgspec.json.encode(fields))


class _RouteEndpoint:
    """A route's handler, behind the check of who asks."""

    def __init__(
        self,
        route: HttpRoute,
        handler: Handler,
        identify: Callable[[HttpExchange, Scope], Awaitable[None]],
    ) -> None:
        self._route = route
        self._handler = handler
        self._identify = identify

    async def __call__(self, scope: AsgiScope, _: Receive, __: Send) -> None:
        exchange = scope[EXCHANGE]
        assert isinstance(exchange, HttpExchange)  # noqa: S101  # the application puts it there
        exchange.route = self._route.name or self._route.path
        if self._route.scope is not None:
            await self._identify(exchange, self._route.scope)
        await self._handler(exchange, scope["path_params"])


def _routing_failure(error: HTTPException) -> BridgeError:
    """Return the failure of a request that no route takes."""
    if error.status_code == 405:  # noqa: PLR2004  # HTTP's number
        allow = (error.headers or {}).get("Allow", "")
        return BridgeError(
            Reason.METHOD_NOT_ALLOWED, f"the route takes {allow}", allow=allow
        )
    return BridgeError(Reason.ROUTE_NOT_FOUND, "there is no such route")
