from typing import Any

import msgspec
import pytest

from inferd.limits.protocol import U32_MAX
from inferd.wire.requests import (
    CancelLine,
    ChatMessage,
    EmbedRequest,
    GenerateRequest,
    RerankRequest,
)
from tests.cases import each_case
from tests.unit.wire import examples

Request = GenerateRequest | EmbedRequest | RerankRequest
TURN = {"role": "user", "content": "hi"}
NEEDED: dict[type[Request], dict[str, Any]] = {
    GenerateRequest: {"messages": [TURN]},
    EmbedRequest: {"input": ["one"]},
    RerankRequest: {"query": "q", "documents": ["one"]},
}
"""The least that each request has."""
REQUIRED = [
    (kind, name) for kind in NEEDED for name in NEEDED[kind] if kind is not EmbedRequest
]
"""Fields without which a request is none; of an embed request the decoder says so."""
U32_FIELDS = [
    *((GenerateRequest, name) for name in ("top_k", "max_tokens", "seed")),
    (GenerateRequest, "image_token_budget"),
    (EmbedRequest, "dimensions"),
    (RerankRequest, "top_n"),
]
OPTIONS = [
    *U32_FIELDS,
    *((GenerateRequest, name) for name in ("temperature", "top_p", "stream")),
    *((GenerateRequest, name) for name in ("stop", "progress")),
    *((EmbedRequest, name) for name in ("task", "tokens")),
]


def read(kind=GenerateRequest, **fields):
    return msgspec.convert({**NEEDED[kind], **fields}, kind)


@pytest.mark.parametrize(
    ("frame", "request_"),
    [
        (
            examples.TEXT,
            GenerateRequest(
                id="a",
                messages=[ChatMessage("system", ""), ChatMessage("user", "hé")],
                temperature=0.5,
                top_p=1.0,
                top_k=0,
                max_tokens=8,
                stream=False,
                image_token_budget=70,
                grammar='root ::= "x"',
                stop=["\n", "b"],
                seed=7,
                progress=True,
                model="m",
                principal="p",
                strict=True,
            ),
        ),
        (
            examples.EMBED,
            EmbedRequest(
                id="a",
                input=["one", "two"],
                dimensions=4,
                task="similarity",
                model="m",
                principal="p",
                strict=True,
            ),
        ),
        (
            examples.RERANK,
            RerankRequest(
                id="a",
                query="q",
                documents=["one", "two"],
                top_n=1,
                model="m",
                principal="p",
                strict=True,
            ),
        ),
    ],
    ids=["text", "embed", "rerank"],
)
def test_every_field_is_read(frame, request_):
    assert msgspec.json.decode(frame, type=type(request_)) == request_


@pytest.mark.parametrize("kind", NEEDED)
def test_all_but_the_content_may_be_left_out(kind):
    request = read(kind)
    given = {name: getattr(request, name) for name in kind.__struct_fields__}
    left_out = {
        name: value for name, value in given.items() if name not in NEEDED[kind]
    }
    assert set(left_out.values()) <= {None, ""}
    assert left_out["id"] == ""


@pytest.mark.parametrize(("kind", "field"), REQUIRED)
def test_a_request_without_content_is_none(kind, field):
    fields = {name: value for name, value in NEEDED[kind].items() if name != field}
    with pytest.raises(msgspec.ValidationError, match=f"required field `{field}`"):
        msgspec.convert(fields, kind)


@each_case(("kind", "field"), U32_FIELDS)
def test_an_unsigned_field_takes_what_32_bits_hold(kind, field):
    assert [getattr(read(kind, **{field: n}), field) for n in (0, U32_MAX)] == [
        0,
        U32_MAX,
    ]
    for outside in (-1, U32_MAX + 1, 1.0, True, "1"):
        with pytest.raises(msgspec.ValidationError, match=field):
            read(kind, **{field: outside})


@pytest.mark.parametrize("field", ["temperature", "top_p"])
def test_a_whole_number_will_do_for_a_fraction(field):
    assert getattr(read(**{field: 1}), field) == 1.0


@each_case(("kind", "field"), OPTIONS)
def test_null_is_as_good_as_nothing_for_an_option(kind, field):
    assert read(kind, **{field: None}) == read(kind)


@each_case(
    ("kind", "field"),
    [
        *((kind, "id") for kind in NEEDED),
        *((kind, name) for kind in NEEDED for name in NEEDED[kind]),
        (GenerateRequest, "grammar"),
    ],
)
def test_null_is_no_text_and_no_list(kind, field):
    with pytest.raises(msgspec.ValidationError, match=field):
        read(kind, **{field: None})


@each_case(
    ("kind", "field", "value"),
    [
        (GenerateRequest, "stop", "text"),
        (GenerateRequest, "stop", [None]),
        (GenerateRequest, "progress", 1),
        (GenerateRequest, "stream", "yes"),
        (EmbedRequest, "input", "text"),
        (EmbedRequest, "input", [1]),
        (EmbedRequest, "tokens", [1]),
        (EmbedRequest, "tokens", [[1], [-1]]),
        (EmbedRequest, "tokens", [[U32_MAX + 1]]),
        (EmbedRequest, "tokens", [[True]]),
        (EmbedRequest, "task", 1),
        (RerankRequest, "documents", "text"),
        (RerankRequest, "documents", [{"text": "x"}]),
        (RerankRequest, "query", ["q"]),
    ],
)
def test_another_type_is_refused_with_its_place(kind, field, value):
    with pytest.raises(msgspec.ValidationError, match=rf"\$\.{field}"):
        read(kind, **{field: value})


def test_ranges_that_are_meaning_are_not_checked_here():
    request = read(temperature=-1, top_p=2, image_token_budget=1, messages=[])
    assert (request.temperature, request.top_p, request.messages) == (-1, 2, [])
    assert read(EmbedRequest, input=[], task="odd", dimensions=0).task == "odd"
    assert read(RerankRequest, query="", documents=[""], top_n=0).top_n == 0
    assert read(stop=[""] * 17, seed=U32_MAX).seed == U32_MAX


@pytest.mark.parametrize("role", ["system", "user", "assistant"])
def test_there_are_three_roles(role):
    turn = {"role": role, "content": ""}
    assert read(messages=[turn]).messages == [ChatMessage(role, "")]


@each_case("role", ["tool", "USER", "", None, 1])
def test_there_is_no_fourth_role(role):
    with pytest.raises(msgspec.ValidationError, match="role"):
        read(messages=[{"role": role, "content": ""}])


def test_a_cancel_has_an_id_and_its_type():
    assert msgspec.convert({"id": "a"}, CancelLine) == CancelLine(id="a")
    for wrong in ({}, {"id": 1}, {"id": "a", "type": "stop"}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(wrong, CancelLine)
