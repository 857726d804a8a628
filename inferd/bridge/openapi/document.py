"""The description of all routes, in OpenAPI 3.1."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from inferd.bridge.openapi.route import JSON, HttpRoute
from inferd.bridge.openapi.schemas import (
    Schema,
    Schemas,
    query_parameters,
    request_schema,
)
from inferd.bridge.translation.api import Api
from inferd.bridge.translation.failures import STATUS, Reason

OPENAPI: Final = "3.1.0"
_PARAMETER: Final = re.compile(r"\{(\w+)(?::\w+)?\}")
_WORD: Final = re.compile(r"[A-Za-z0-9]+")
_SECURITY: Final[Schema] = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "A token of `inferd bridge token add`.",
    },
    "key": {
        "type": "apiKey",
        "in": "header",
        "name": "x-api-key",
        "description": "The same token, where Anthropic's clients send it.",
    },
}
_TEXT: Final[Schema] = {"type": "string"}
_RETRY: Final[Schema] = {
    "retry-after": {
        "description": "Seconds until a retry may succeed, if that is known.",
        "schema": {"type": "integer", "minimum": 1},
    }
}
_MEANINGS: Final[Mapping[int, str]] = {
    400: "The request has something that is refused, with the field at fault",
    401: "No valid token came with the request",
    403: "The token or the page that asks may not do this",
    404: "There is no such route, model, chat or message",
    405: "The route takes another method",
    408: "The body took too long",
    409: "What is there already contradicts the request",
    413: "The body is too large",
    415: "The body is compressed",
    429: "Too many requests, or the tokens of the day are used up",
    500: "A bug; the log of the bridge has it under the id of the request",
    501: "The bridge is not set up for this",
    502: "The helper or the daemon could not do it, and says why",
    503: "What answers is not ready",
    504: "The deadline of the request has passed",
}


def describe(routes: Sequence[HttpRoute], version: str) -> Schema:
    """Describe routes.

    Args:
        routes: all of the bridge.
        version: of the bridge.

    Returns:
        The document; it follows from the arguments alone.
    """
    schemas = Schemas([*_types(routes)])
    paths: dict[str, Schema] = {}
    for route in routes:
        entry = paths.setdefault(_PARAMETER.sub(r"{\1}", route.path), {})
        entry[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": OPENAPI,
        "info": {
            "title": "inferd bridge",
            "version": version,
            "description": "Language, embedding, reranking and speech models over HTTP.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas.without(_bodies(routes)),
            "securitySchemes": _SECURITY,
        },
    }


def _types(routes: Sequence[HttpRoute]) -> Iterator[object]:
    """List the types of requests, answers and failures."""
    for route in routes:
        yield from (api.failure for api in route.apis)
        yield from route.answers.values()
        if route.operation is not None:
            yield route.operation.answer
    yield from _bodies(routes)


def _bodies(routes: Sequence[HttpRoute]) -> Iterator[object]:
    """List the types of requests, whose schemas are those of their tables of fields."""
    for route in routes:
        if route.takes is not None and route.takes.body is not None:
            yield route.takes.body


def _operation(route: HttpRoute, schemas: Schemas) -> Schema:
    described: Schema = {
        "operationId": "_".join((route.method.lower(), *_WORD.findall(route.path))),
        "summary": route.summary,
        "tags": [api.name for api in route.apis],
        "responses": _responses(route, schemas),
    }
    parameters: list[Schema] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PARAMETER.findall(route.path)
    ]
    if parameters := [*parameters, *query_parameters(route.queries)]:
        described["parameters"] = parameters
    if (takes := route.takes) is not None:
        content = {takes.content_type: {"schema": request_schema(takes, schemas)}}
        described["requestBody"] = {"required": True, "content": content}
    if route.scopes:
        # Without a token: the bridge's own user, whom the kernel names.
        described["security"] = [{"bearer": []}, {"key": []}, {}]
        described["x-inferd-scopes"] = list(route.scopes)
    return described


def _responses(route: HttpRoute, schemas: Schemas) -> Schema:
    content = {
        media: {"schema": schemas.of(kind)} for media, kind in route.answers.items()
    }
    if (operation := route.operation) is not None:
        media = JSON if operation.answer is not bytes else "*/*"
        content[media] = {"schema": schemas.of(operation.answer)}
        for media in operation.texts:
            content[media.partition(";")[0]] = {"schema": _TEXT}
        if operation.stream is not None:
            media = operation.stream.content_type.partition(";")[0]
            content[media] = {}  # a schema would be that of each event
    answers: Schema = {}
    if route.lookup is None or not route.lookup.is_refused:
        answers["200"] = {"description": "The answer.", "content": content}
    for status, reasons in _by_status(route).items():
        codes = ", ".join(f"`{reason.value}`" for reason in reasons)
        answers[str(status)] = {
            "description": f"{_MEANINGS[status]}: {codes}.",
            "content": {JSON: {"schema": _any_of(route.apis, schemas)}},
            **({"headers": _RETRY} if status in {429, 503} else {}),
        }
    return answers


def _by_status(route: HttpRoute) -> dict[int, list[Reason]]:
    found: dict[int, list[Reason]] = {}
    for reason in route.failures:
        found.setdefault(STATUS[reason], []).append(reason)
    return dict(sorted(found.items()))


def _any_of(apis: Sequence[Api], schemas: Schemas) -> Schema:
    forms = [schemas.of(api.failure) for api in apis]
    return forms[0] if len(forms) == 1 else {"anyOf": forms}
