"""A route's endpoint, the failures of routing, and the headers of all failures."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Receive, Scope as AsgiScope, Send

from inferd.bridge.http.exchange import HttpExchange
from inferd.bridge.identity.token import Scope
from inferd.bridge.openapi.route import HttpRoute
from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.bridge.translation.query import read_query

EXCHANGE: Final = "inferd.exchange"
"""Key of a scope under which routes find the exchange."""
DEPTH_HEADER: Final = "x-inferd-queue-depth"
"""The requests that wait in the daemon, where its queue is full."""
Handler = Callable[[HttpExchange, Mapping[str, str]], Awaitable[None]]


class RouteEndpoint:
    """A route's handler, behind the check of who asks."""

    def __init__(
        self,
        route: HttpRoute,
        handler: Handler,
        identify: Callable[[HttpExchange, Sequence[Scope]], None],
    ) -> None:
        self._route = route
        self._handler = handler
        self._identify = identify

    async def __call__(self, scope: AsgiScope, _: Receive, __: Send) -> None:
        """Have the handler answer a request.

        Raises:
            BridgeError: the caller may not ask this, a parameter behind the path is refused,
                or the handler fails.
        """
        exchange = scope[EXCHANGE]
        assert isinstance(exchange, HttpExchange)  # noqa: S101  # the application puts it there
        exchange.route = self._route.name or self._route.path
        if self._route.scopes:
            self._identify(exchange, self._route.scopes)
        if len(self._route.queries) == 1:  # else a header chooses
            [query] = self._route.queries
            read_query(exchange.query, query.table, query.kind)
        await self._handler(exchange, scope["path_params"])


def routing_failure(
    error: HTTPException, scope: AsgiScope, routes: Iterable[BaseRoute]
) -> BridgeError:
    """Return the failure of a request that no route takes.

    Args:
        error: of the router, which names the methods of one route alone.
        scope: of the request.
        routes: all of the router.
    """
    if error.status_code == 405:  # noqa: PLR2004  # HTTP's number
        methods = {
            method
            for route in routes
            if isinstance(route, Route) and route.matches(scope)[0] is not Match.NONE
            for method in route.methods or ()
        }
        allow = ", ".join(sorted(methods))
        return BridgeError(
            Reason.METHOD_NOT_ALLOWED, f"the route takes {allow}", allow=allow
        )
    return BridgeError(Reason.ROUTE_NOT_FOUND, "there is no such route")


def failure_headers(failure: BridgeError) -> dict[str, str]:
    """Return the headers of a failure."""
    headers: dict[str, str] = {}
    if failure.queue_depth is not None:
        headers[DEPTH_HEADER] = str(failure.queue_depth)
    if failure.retry_after_s is not None:
        headers["retry-after"] = str(max(1, -(-int(failure.retry_after_s * 10) // 10)))
    if failure.reason is Reason.UNAUTHENTICATED:
        headers["www-authenticate"] = "Bearer"
    if failure.allow:
        headers["allow"] = failure.allow
    return headers
