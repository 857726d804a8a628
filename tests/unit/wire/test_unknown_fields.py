import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from inferd.limits.protocol import (
    MAX_ATTACHMENTS,
    MAX_BLOCK_DEPTH,
    MAX_BLOCKS,
    MAX_MESSAGES,
    MAX_UNKNOWN_FIELD_CHARS,
    MAX_UNKNOWN_FIELDS,
    STRICT_OBJECTS,
    TOOLS_MAX_BYTES,
)
from inferd.wire.codec import (
    decode_blocks,
    decode_embed,
    decode_generate,
    decode_rerank,
    encode,
)
from inferd.wire.unknown_fields import strict_refusal
from tests.cases import each_case
from tests.unit import strategies
from tests.unit.wire import examples

DECODERS: dict[str, Any] = {
    "text": decode_generate,
    "blocks": decode_blocks,
    "embed": decode_embed,
    "rerank": decode_rerank,
}
EXAMPLES = {
    "text": examples.TEXT,
    "blocks": examples.BLOCKS,
    "embed": examples.EMBED,
    "rerank": examples.RERANK,
}
REQUESTS = {
    "text": strategies.REQUESTS,
    "blocks": strategies.BLOCKS_REQUESTS,
    "embed": strategies.EMBED_REQUESTS,
    "rerank": strategies.RERANK_REQUESTS,
}
KINDS = sorted(DECODERS)
TEXT_BLOCK = {"type": "text", "text": "hi"}


def refusal(kind: str, fields: dict[str, Any] | bytes) -> str | None:
    frame = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
    error = strict_refusal(frame, DECODERS[kind](frame))
    return None if error is None else str(error)


def blocks(*content: Any, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": content or [TEXT_BLOCK]}]
    return {"strict": True, "messages": messages, **fields}


def unknown(*paths: str) -> str:
    return f"strict: no such field: {', '.join(paths)}; allowed beside {paths[0]}: "


@each_case("kind", KINDS)
@each_case("strict", [False, None])
def test_a_request_that_is_not_strict_may_have_any_field(kind, strict):
    fields = json.loads(EXAMPLES[kind]) | {"strict": strict, "temprature": 1}
    assert refusal(kind, fields) is None
    del fields["strict"]
    assert refusal(kind, fields) is None


@each_case("kind", KINDS)
def test_a_strict_request_may_have_every_known_field(kind):
    assert refusal(kind, json.loads(EXAMPLES[kind]) | {"strict": True}) is None


@pytest.mark.slow
@settings(max_examples=50)
@given(data=st.data(), kind=st.sampled_from(KINDS))
def test_what_this_protocol_writes_is_never_refused(data, kind):
    request = data.draw(REQUESTS[kind])
    strict = msgspec.structs.replace(request, strict=True)
    assert strict_refusal(encode(strict), strict) is None


@each_case("kind", KINDS)
def test_an_unknown_field_is_named_with_those_that_are_allowed(kind):
    fields = json.loads(EXAMPLES[kind])
    known = ", ".join(sorted({*DECODERS[kind](EXAMPLES[kind]).__struct_fields__}))
    for name in ("temprature", "Id", "type"):
        assert refusal(kind, fields | {"strict": True, name: None}) == (
            unknown(name) + known
        )


@each_case(
    ("fields", "path", "allowed"),
    [
        (blocks({**TEXT_BLOCK, "x": 1}), "messages[0].content[0].x", "text, type"),
        (
            blocks(
                tools=[{"name": "f", "description": "", "input_schema": {}, "x": 1}]
            ),
            "tools[0].x",
            "description, input_schema, name",
        ),
        (
            blocks(
                attachments=[
                    {"kind": "video", "id": "a", "bytes": ""},
                    {"kind": "video", "id": "b", "bytes": "", "width": 1},
                ]
            ),
            "attachments[1].width",
            "bytes, id, kind",
        ),
        (blocks(tool_choice={"name": "f", "type": "tool"}), "tool_choice.type", "name"),
        (
            blocks(response_format={"type": "regex", "strict": True}),
            "response_format.strict",
            "grammar, pattern, schema, type",
        ),
        (
            blocks(
                {
                    "type": "tool_result",
                    "tool_call_id": "t",
                    "content": [TEXT_BLOCK, {**TEXT_BLOCK, "is_error": False}],
                }
            ),
            "messages[0].content[0].content[1].is_error",
            "text, type",
        ),
    ],
)
def test_an_unknown_field_is_found_at_every_level(fields, path, allowed):
    assert refusal("blocks", fields) == unknown(path) + allowed
    assert refusal("blocks", fields | {"strict": False}) is None


def test_json_that_the_daemon_does_not_read_may_have_any_keys():
    call = {"type": "tool_use", "tool_call_id": "t", "name": "f", "input": {"x": 1}}
    tool = {"name": "f", "description": "", "input_schema": {"$defs": {"x": 1}}}
    structure = {"type": "json_schema", "schema": {"x": {"y": 1}}}
    fields = blocks(call, tools=[tool], response_format=structure, logit_bias={"5": 1})
    assert refusal("blocks", fields) is None


def test_what_has_an_unknown_type_is_not_searched():
    fields = blocks(
        {"type": "hologram", "x": {"y": 1}}, attachments=[{"kind": "smell", "x": 1}]
    )
    assert refusal("blocks", fields) is None


def test_several_are_named_in_order_and_no_more_than_a_few():
    some = {f"x{number}": 1 for number in range(MAX_UNKNOWN_FIELDS)}
    text = refusal("blocks", blocks(**some))
    assert text is not None
    assert text.startswith(unknown(*some))
    text = refusal("blocks", blocks(**some, last=1))
    assert text is not None
    assert ", ".join(some) + " and more; " in text
    assert "last" not in text


def test_a_long_name_is_cut():
    text = refusal("embed", {"input": ["x"], "strict": True, "x" * 100_000: 1})
    assert text is not None
    assert text.startswith(unknown("x" * MAX_UNKNOWN_FIELD_CHARS))


def test_a_name_that_is_written_with_escapes_is_the_same_name():
    assert refusal("embed", b'{"\\u0069nput":["x"],"strict":true}') is None
    text = refusal("embed", b' {"input" : ["x"], "strict": true , "\\u0078" :1 } ')
    assert text is not None
    assert text.startswith(unknown("x"))


def test_a_name_that_is_no_text_is_refused():
    text = refusal("embed", b'{"input":["x"],"strict":true,"\xff":1}')
    assert text == "strict: the names of the fields cannot be read"


def test_unknown_values_are_not_decoded():
    """They may be what this decoder would not read, as in a request that is not strict."""
    frame = b'{"strict":true,"input":["x"],"x":[1e999,"\xff"]}'
    text = refusal("embed", frame)
    assert text is not None
    assert text.startswith(unknown("x"))


def test_blocks_that_are_nested_as_deeply_as_may_be_are_searched():
    block: Any = {**TEXT_BLOCK, "x": 1}
    for _ in range(MAX_BLOCK_DEPTH - 1):
        block = {"type": "tool_result", "tool_call_id": "t", "content": [block]}
    assert refusal("blocks", blocks(block)) is not None
    block = {"type": "tool_result", "tool_call_id": "t", "content": [block]}
    assert refusal("blocks", blocks(block)) is None  # refused by resolve


def test_a_bounded_number_of_objects_is_searched(monkeypatch):
    monkeypatch.setattr("inferd.wire.unknown_fields.STRICT_OBJECTS", 100)
    message = {"role": "user", "content": ""}

    def text_of(n_messages: int) -> str | None:
        messages = [*[message] * n_messages, {**message, "x": 1}]
        return refusal("text", {"strict": True, "messages": messages})

    assert text_of(98) is not None
    assert text_of(99) is None


def test_every_request_that_may_be_served_is_searched_to_its_end():
    n_tools = TOOLS_MAX_BYTES // len('{"name":"","description":"","input_schema":0},')
    n_messages, n_blocks = 2 * MAX_MESSAGES, 2 * MAX_BLOCKS
    assert n_messages + n_blocks + n_tools + MAX_ATTACHMENTS + 10 < STRICT_OBJECTS
