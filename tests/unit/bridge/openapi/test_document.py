"""The description of the routes, against the routes and against what requests meet."""

import json
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest

from inferd.bridge.access_log import BridgeLog
from inferd.bridge.apis import APIS
from inferd.bridge.http.app import BridgeApp
from inferd.bridge.openapi.document import describe
from inferd.bridge.translation.api import Operation
from inferd.bridge.translation.failures import STATUS, BridgeError, Reason
from inferd.bridge.translation.question import Asked
from inferd.config.bridge import BridgeSettings
from tests.cases import each_case

ASKED = Asked(request_id="req_1", created_s=0, default_max_tokens=10)
CHAT, EMBEDDINGS = "/v1/chat/completions", "/v1/embeddings"
OTHERS = (
    *(Reason.METHOD_NOT_ALLOWED, Reason.NOT_CONFIGURED, Reason.NOT_DONE),
    Reason.CHAT_CONFLICT,
)
"""Why requests fail that the daemon does not answer."""
HI = [{"role": "user", "content": "hi"}]
BODIES: list[tuple[str, dict[str, Any]]] = [
    (CHAT, {"messages": HI}),
    (CHAT, {"messages": HI, "temperature": 0.5, "stop": ["a"], "user": {"any": 1}}),
    (CHAT, {"messages": HI, "n": 1, "store": False, "audio": None}),
    (CHAT, {"messages": HI, "n": 2}),
    (CHAT, {"messages": HI, "audio": {}}),
    (CHAT, {"messages": HI, "temperature": "hot"}),
    (CHAT, {"messages": HI, "max_tokens": 0}),
    (CHAT, {"messages": HI, "unheard_of": 1}),
    (CHAT, {"messages": None}),
    (CHAT, {}),
    (EMBEDDINGS, {"input": "a", "encoding_format": None}),
    (EMBEDDINGS, {"input": "a", "encoding_format": "int8"}),
    ("/v1/messages", {"messages": HI, "max_tokens": 5, "model": "m"}),
    ("/v1/messages", {"messages": HI, "max_tokens": "5", "model": "m"}),
]


def app() -> BridgeApp:
    nothing: Any = None
    return BridgeApp(
        nothing, nothing, nothing, BridgeSettings(), BridgeLog(list[bytes]().append)
    )


@pytest.fixture(scope="module")
def document() -> Any:
    return json.loads(json.dumps(describe(app().routes, "1.0")))


def parts(value: Any) -> Iterator[dict[str, Any]]:
    """Give all objects in a document."""
    if isinstance(value, dict):
        yield value
        for each in value.values():
            yield from parts(each)
    elif isinstance(value, list):
        for each in value:
            yield from parts(each)


def operations(document: Any) -> Iterator[tuple[str, str, Any]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def test_each_route_of_the_router_is_described(document):
    ours = app()
    routes: list[Any] = [*ours._router.routes]
    routed = {
        (route.path, method) for route in routes for method in route.methods - {"HEAD"}
    }
    assert routed == {(route.path, route.method) for route in ours.routes}
    described = [*operations(document)]
    assert len(described) == len(ours.routes)
    ids = [operation["operationId"] for _, _, operation in described]
    assert len(set(ids)) == len(ids)


def test_each_schema_is_one_and_refers_to_what_is_there(document):
    for part in parts(document):
        if isinstance(schema := part.get("schema"), dict):
            jsonschema_rs.meta.validate(
                {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
            )
        if isinstance(place := part.get("$ref"), str):
            assert (
                place.removeprefix("#/components/schemas/")
                in (document["components"]["schemas"])
            )


def test_who_asks_and_what_may_be_told_follow_from_the_route(document):
    chat = document["paths"][CHAT]["post"]
    assert chat["x-inferd-scopes"] == ["inference"]
    assert {"bearer", "key"} == {name for each in chat["security"] for name in each}
    assert "security" not in document["paths"]["/health"]["get"]
    assert set(chat["responses"]) == {
        "200",
        *(str(STATUS[reason]) for reason in Reason if reason not in OTHERS),
    }
    content = chat["responses"]["200"]["content"]
    assert content.keys() == {"application/json", "text/event-stream"}
    assert content["text/event-stream"] == {}  # what a schema there means is not agreed
    assert document["paths"]["/v1/models/{model}"]["get"]["parameters"]


def test_a_form_is_described_with_its_file_and_all_forms_of_its_answer(document):
    route = document["paths"]["/v1/audio/transcriptions"]["post"]
    schema = route["requestBody"]["content"]["multipart/form-data"]["schema"]
    assert schema["required"] == ["file"]
    assert "contentMediaType" in schema["properties"]["file"]
    assert "timestamp_granularities[]" in schema["properties"]
    assert route["responses"]["200"]["content"].keys() == {
        *("application/json", "text/event-stream"),
        *("text/plain", "text/vtt", "application/x-subrip"),
    }


def test_a_route_that_is_always_refused_has_no_answer_but_its_refusal(document):
    refused = document["paths"]["/api/push"]["post"]["responses"]
    assert "200" not in refused
    assert "403" in refused
    assert "200" in document["paths"]["/api/tags"]["get"]["responses"]


def failure_of(path: str, body: dict[str, Any]) -> BridgeError | None:
    found = [
        each
        for api in APIS
        for each in api.operations
        if isinstance(each, Operation) and each.path == path
    ]
    try:
        found[0].ask(json.dumps(body).encode(), ASKED)
    except BridgeError as error:
        return error
    return None


@each_case(("path", "body"), BODIES)
def test_a_body_fits_its_schema_as_it_is_taken_or_refused(document, path, body):
    schema = document["paths"][path]["post"]["requestBody"]["content"][
        "application/json"
    ]["schema"]
    validator = jsonschema_rs.validator_for(
        {**schema, "components": document["components"]}
    )
    assert validator.is_valid(body) == (failure_of(path, body) is None)


@each_case("api", APIS, ids=lambda api: api.name)
@each_case("reason", Reason)
def test_a_failure_has_the_form_that_is_described(document, api, reason):
    path = [*api.operations, *api.managed, *api.hosted][0].path
    operation = next(iter(document["paths"][path].values()))
    schema = operation["responses"]["400"]["content"]["application/json"]["schema"]
    validator = jsonschema_rs.validator_for(
        {**schema, "components": document["components"]}
    )
    failure = BridgeError(reason, "text", param="thread")
    validator.validate(json.loads(api.error_body(failure)))
