import json
import re
from typing import Any

import pytest

from inferd.bridge.openai.api import OPENAI
from inferd.bridge.translation.fields import FieldTable, honoured, refused
from proofs.published.answers import Answered, Asked, Body, Exchange, Judge, values_of
from proofs.published.documents import EVENTS, at, corrected, operations_of, trim
from proofs.published.requests import Limits, limits_of, narrow, request_fields
from proofs.published.sample import SAMPLES

PATH = "/chat/completions"
DOCUMENT = SAMPLES["openai"]
TRIMMED: Any = corrected(trim(DOCUMENT, [("POST", PATH), ("POST", "/rerank")]))
TABLE = FieldTable(
    "",
    [
        *honoured("model", "messages", "stream"),
        *refused("n", note="", neutral=(1,)),
        *refused("store", note=""),
    ],
)
CHUNK = {"id": "a", "object": "chat.completion.chunk", "choices": [{"index": 0}]}
WHOLE = {**CHUNK, "object": "chat.completion", "usage": {"total_tokens": 1}}


def test_a_trimmed_document_has_what_is_served_and_what_that_refers_to():
    assert operations_of(TRIMMED) == [("POST", PATH)]
    schemas = at(TRIMMED, ("components", "schemas"))
    left_out = at(DOCUMENT, ("components", "schemas")).keys() - schemas.keys()
    assert left_out == {"Elsewhere"}


def test_words_of_older_documents_are_put_into_those_of_newer_ones():
    assert corrected(
        {
            "oneOf": [{"type": "string", "nullable": True}, {"nullable": False}],
            "discriminator": {"propertyName": "type"},
        }
    ) == {
        "anyOf": [
            {"anyOf": [{"type": "string"}, {"type": "null"}]},
            {"nullable": False},
        ]
    }


def test_narrowed_requests_have_what_a_table_accepts_and_answers_stay():
    limits = limits_of(TABLE, {"model": {"enum": ["chat"]}})
    messages: Limits = {"ChatCompletionRequestMessage": {"const": {}}}
    assert request_fields(TRIMMED, PATH) == {each.name for each in TABLE.fields}
    narrowed = narrow(TRIMMED, {PATH: limits}, messages, ("stream", "seed"))
    content = ("post", "requestBody", "content", "application/json", "schema")
    schema = at(narrowed, ("paths", PATH, *content))
    assert schema == {
        "type": "object",
        "properties": {
            "model": {"enum": ["chat"]},
            "n": {"enum": [1]},
            "messages": {
                "type": "array",
                "items": {
                    "$ref": "#/components/schemas/AskedChatCompletionRequestMessage"
                },
            },
            "stream": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
        },
        "required": ["model", "messages", "stream"],
        "additionalProperties": False,
    }
    answers = ("paths", PATH, "post", "responses")
    assert at(narrowed, answers) == at(TRIMMED, answers)
    schemas = at(narrowed, ("components", "schemas"))
    assert schemas["AskedChatCompletionRequestMessage"] == {"const": {}}


def test_schemas_within_requests_are_closed_or_left_out():
    narrowed = narrow(TRIMMED, {PATH: {}}, {})
    name = "AskedChatCompletionRequestMessage"
    asked = at(narrowed, ("components", "schemas", name))
    assert asked["additionalProperties"] is False
    assert asked["required"] == ["role", "content"]


@pytest.mark.parametrize(
    ("media", "text", "values"),
    [
        ("application/json", '{"a":1}', [{"a": 1}]),
        ("application/x-ndjson", '{"a":1}\n  {"a":2}\n', [{"a": 1}, {"a": 2}]),
        ("application/x-ndjson", '{"a":"\u2028\x85"}\n', [{"a": "\u2028\x85"}]),
        (EVENTS, ': wait\n\ndata: {"a":1}\n\ndata: [DONE]\n\n', [{"a": 1}]),
        (EVENTS, 'event: x\ndata: {"type":"x"}\n\n', [{"type": "x"}]),
        ("text/plain", "one", ["one"]),
    ],
)
def test_each_event_of_a_stream_is_a_value(media, text, values):
    assert [*values_of(Body(f"{media}; charset=utf-8", text))] == values


def test_an_event_has_the_name_of_its_type():
    with pytest.raises(ValueError, match="event x has type y"):
        [*values_of(Body(EVENTS, 'event: x\ndata: {"type":"y"}\n\n'))]


def faults(status, media, text):
    judge = Judge(TRIMMED, "/v1", OPENAI)
    asked = Asked("POST", f"http://127.0.0.1:1/v1{PATH}")
    return [*judge.faults(Exchange(asked, Answered(status, Body(media, text))))]


def events(*values):
    return "".join(f"data: {json.dumps(value)}\n\n" for value in values)


REFUSAL = {"message": "", "type": "invalid_request_error", "param": None, "code": "a"}


@pytest.mark.parametrize(
    ("status", "media", "text"),
    [
        (200, "application/json", json.dumps(WHOLE)),
        (200, EVENTS, events(CHUNK, CHUNK)),
        (400, "application/json", json.dumps({"error": REFUSAL})),
    ],
)
def test_answers_that_a_document_has_are_no_faults(status, media, text):
    assert faults(status, media, text) == []


@pytest.mark.parametrize(
    ("status", "media", "text", "fault"),
    [
        (200, "application/json", json.dumps(CHUNK), "Whole/required|object: .*chunk"),
        (200, EVENTS, events(CHUNK, {**CHUNK, "choices": [{}]}), "choices/0: .*index"),
        (200, "text/plain", "one", "200 as text/plain"),
        (400, "application/json", '{"error":"text"}', "a failure of another form"),
        (404, "text/plain", json.dumps({"error": REFUSAL}), "a failure as text/plain"),
        (500, "application/json", "{}", "status 500"),
    ],
)
def test_other_answers_are_faults_with_their_place(status, media, text, fault):
    found = faults(status, media, text)
    assert found
    for each in found:
        assert each.startswith(f"POST {PATH}")
        assert re.search(fault, each)
