"""The records of routes that follow from those of APIs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from inferd.bridge.apis import api_of
from inferd.bridge.identity.token import Scope
from inferd.bridge.openapi.route import (
    ANY_OBJECT,
    JSON,
    OF_THE_DAEMON,
    OF_THE_HELPER,
    HttpRoute,
)
from inferd.bridge.translation.api import (
    Api,
    FormOperation,
    HostedOperation,
    Lookup,
    Operation,
)
from inferd.bridge.translation.failures import Reason
from inferd.bridge.translation.managed import ManagedOperation

ABOUT_THE_BRIDGE: Final[tuple[Scope, ...]] = ("inference", "admin", "discovery")
"""Scopes by which the bridge tells of itself."""
LISTING: Final[tuple[Scope, ...]] = ("inference", "discovery")
"""Scopes by which models are listed."""


def forms_of(path: str, apis: Sequence[Api]) -> tuple[Api, ...]:
    """List the APIs in whose form a path may be answered: a header may choose."""
    found = [api_of(path, (), apis), *(api for api in apis if api.own_header)]
    return tuple({api.name: api for api in found}.values())


def own_route(  # noqa: PLR0913  # what a route may have
    apis: Sequence[Api],
    path: str,
    summary: str,
    *,
    scopes: tuple[Scope, ...] = (),
    answers: Mapping[str, object] | None = None,
    reasons: tuple[Reason, ...] = (),
) -> HttpRoute:
    """Make the record of a route that no API has as an operation."""
    return HttpRoute(
        path=path,
        method="GET",
        summary=summary,
        scopes=scopes,
        apis=forms_of(path, apis),
        answers=answers or {JSON: ANY_OBJECT},
        reasons=reasons,
    )


def operation_routes(
    api: Api,
) -> Iterator[tuple[HttpRoute, Operation | FormOperation]]:
    """Give the routes of an API that the daemon answers."""
    for operation in api.operations:
        for path in (operation.path, *operation.also):
            route = HttpRoute(
                path=path,
                name=operation.path,
                method="POST",
                summary=f"Answer a request of the API {api.name}",
                scopes=("inference",),
                apis=(api,),
                queries=(api.query,),
                operation=operation,
                reasons=OF_THE_DAEMON,
            )
            yield route, operation


def managed_routes(api: Api) -> Iterator[tuple[HttpRoute, ManagedOperation]]:
    """Give the routes of an API that the helper answers."""
    for operation in api.managed:
        route = HttpRoute(
            path=operation.path,
            method=operation.method,
            summary=operation.summary,
            scopes=(operation.scope,),
            apis=(api,),
            queries=(api.query,),
            operation=operation,
            reasons=OF_THE_HELPER,
        )
        yield route, operation


def model_routes(
    api: Api, apis: Sequence[Api]
) -> Iterator[tuple[HttpRoute, HttpRoute]]:
    """Give the routes of an API's lists of models, each with that of one model."""
    name, below = api.models_path, "/{model:path}"
    for path in filter(None, (name, *api.models_also)):
        listed = own_route(
            apis,
            path,
            "List the models",
            scopes=LISTING,
            reasons=(Reason.UNKNOWN_FIELD,),
        )
        shown = own_route(
            apis,
            path + below,
            "Describe a model",
            scopes=LISTING,
            reasons=(Reason.UNKNOWN_FIELD, Reason.MODEL_NOT_FOUND),
        )
        forms = listed.apis
        yield (
            replace(
                listed,
                name=name,
                queries=tuple(each.models_query or each.query for each in forms),
            ),
            replace(
                shown, name=name + below, queries=tuple(each.query for each in forms)
            ),
        )


def hosted_routes(api: Api) -> Iterator[tuple[HttpRoute, HostedOperation]]:
    """Give the routes of an API that the bridge answers itself."""
    for operation in api.hosted:
        route = HttpRoute(
            path=operation.path,
            method=operation.method,
            summary=operation.summary,
            scopes=(operation.scope,),
            apis=(api,),
            queries=(operation.query,),
            operation=operation,
            reasons=operation.reasons,
        )
        yield route, operation


def lookup_routes(api: Api) -> Iterator[tuple[HttpRoute, Lookup]]:
    """Make the records of the routes that are answered without a request."""
    for lookup in api.lookups:
        route = HttpRoute(
            path=lookup.path,
            method=lookup.method,
            summary=lookup.summary,
            scopes=("inference",),
            apis=(api,),
            queries=(api.query,),
            lookup=lookup,
            reasons=lookup.reasons,
        )
        yield route, lookup
