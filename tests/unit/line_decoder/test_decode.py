import json
from typing import Any

import msgspec
import pytest

from inferd.backend.job import EmbedJob, GenerateJob, Turn
from inferd.limits.line_decoder import MAX_HEAD_BYTES, MAX_TOOLS_BYTES
from inferd.limits.protocol import MAX_JOB_MEDIA, U32_MAX
from inferd.line_decoder.decode import decode_large_line
from inferd.line_decoder.kind import DecodeOutput
from inferd.line_decoder.kinds import KINDS
from inferd.line_decoder.messages import DecodeTask, framed
from inferd.wire.blocks import BlocksRequest
from inferd.wire.requests import CancelLine, GenerateRequest
from tests.cases import each_case


def ask_for(kind: str, line: bytes, **fields: Any) -> DecodeTask:
    return DecodeTask(
        kind=kind, n_bytes=len(line), seed=1, owner=7, marker="mark", **fields
    )


def found(kind: str, message: Any, **fields: Any) -> DecodeOutput:
    line = message if isinstance(message, bytes) else json.dumps(message).encode()
    return decode_large_line(ask_for(kind, line, **fields), line)


def turns_in(result: DecodeOutput) -> list[Turn]:
    return msgspec.msgpack.decode(result.sections[0], type=list[Turn])


def blocks(*content: Any, **fields: Any) -> dict[str, Any]:
    content = content or ({"type": "text", "text": "hello"},)
    return {"id": "r", "messages": [{"role": "user", "content": content}], **fields}


def test_large_parts_of_a_v1_request_are_sections():
    messages = [{"role": "user", "content": "hello"}]
    result = found("text", {"id": "r", "messages": messages, "max_tokens": 3})
    request = result.result.request
    assert request is not None
    light, n_texts = KINDS["text"].read_head(request)
    assert isinstance(light, GenerateRequest)
    assert (light.id, light.messages, n_texts) == ("r", [], 0)
    job = request.job
    assert isinstance(job, GenerateJob)
    assert (job.turns, job.max_tokens, job.owner) == ([], 3, 7)
    assert turns_in(result) == [Turn("user", "hello")]
    assert result.result.sections == [len(each) for each in result.sections]


def test_texts_of_attachments_are_sections_in_order():
    sound = {"kind": "audio", "id": "a", "sample_rate": 16000, "bytes": "AAAAAA=="}
    message = blocks({"type": "audio", "attachment_id": "a"}, attachments=[sound])
    result = found("blocks", message)
    request = result.result.request
    assert request is not None
    light, n_texts = KINDS["blocks"].read_head(request)
    assert isinstance(light, BlocksRequest)
    assert [each.bytes for each in light.attachments] == [""]  # type: ignore[union-attr]
    assert n_texts == 1
    assert result.sections[1] == b"AAAAAA=="
    assert ["takes_rate", "a", 16000] in request.needs
    assert request.stats == {"n_attachments": 1, "n_tools": 0}


def test_that_a_conversation_has_calls_is_known_without_it():
    call = {"type": "tool_use", "tool_call_id": "c", "name": "f", "input": {}}
    message = blocks()
    message["messages"].append({"role": "assistant", "content": [call]})
    request = found("blocks", message).result.request
    assert request is not None
    assert isinstance(request.job, GenerateJob)
    assert request.job.may_call


@each_case(
    ("kind", "message", "text"),
    [
        ("text", {"id": "r", "messages": []}, "messages must not be empty"),
        ("blocks", blocks(temperature=5), "temperature 5 not in [0, 2]"),
        ("embed", {"id": "r", "input": []}, "input must not be empty"),
        (
            "rerank",
            {"id": "r", "query": "", "documents": []},
            "query must not be empty",
        ),
        (
            "blocks",
            blocks(
                *[{"type": "image", "attachment_id": "i"}] * (MAX_JOB_MEDIA + 1),
                attachments=[
                    {
                        "kind": "image",
                        "id": "i",
                        "width": 1,
                        "height": 1,
                        "bytes": "AAAA",
                    }
                ],
            ),
            f"messages show media {MAX_JOB_MEDIA + 1} times",
        ),
        (
            "blocks",
            blocks(
                tools=[
                    {
                        "name": "f",
                        "description": "x" * MAX_TOOLS_BYTES,
                        "input_schema": {},
                    }
                ]
            ),
            "tools have ",
        ),
    ],
)
def test_a_request_that_cannot_be_served_keeps_its_id(kind, message, text):
    result = found(kind, message)
    request = result.result.request
    assert request is not None
    assert request.refusal is not None
    assert request.refusal.text.startswith(text)
    light, _ = KINDS[kind].read_head(request)
    assert (light.id, request.job, result.sections) == ("r", None, ())


def test_a_line_that_is_no_request_is_a_failure():
    failure = found("text", b"no JSON").result.failure
    assert failure is not None
    assert failure.name == "InvalidFrameError"


def test_cancels_are_read_everywhere_and_appends_on_v2_alone():
    assert found("embed", {"type": "cancel", "id": "r"}).result.cancel == CancelLine(
        id="r"
    )
    line = {"type": "append", "id": "r", "attachment_id": "a", "bytes": "AAAA"}
    result = found("blocks", line)
    assert result.result.append is not None
    assert (result.result.append.bytes, result.sections) == ("", [b"AAAA"])
    assert found("text", line).result.failure is not None


@pytest.mark.parametrize(
    ("fields", "texts", "tokens"),
    [
        ({"input": ["a", "b"]}, ["", ""], []),
        ({"tokens": [[1, 2], [U32_MAX]]}, [], [[], []]),
    ],
)
def test_as_many_texts_are_known_as_there_are(fields, texts, tokens):
    result = found("embed", {"id": "r", **fields})
    request = result.result.request
    assert request is not None
    assert isinstance(request.job, EmbedJob)
    assert (request.job.texts, request.job.tokens) == (texts, tokens)
    [content] = fields.values()
    assert msgspec.msgpack.decode(result.sections[0]) == content


LONG = "x" * (2 * MAX_HEAD_BYTES)
AUDIO = {"kind": "audio", "id": LONG, "sample_rate": 16_000, "bytes": ""}


@pytest.mark.parametrize(
    "message",
    [
        blocks(attachments=[AUDIO]),
        blocks(max_tokens=3, attachments=[AUDIO]),
        {"type": "append", "id": "r", "attachment_id": LONG, "end": True},
    ],
)
def test_the_daemon_decodes_no_field_that_is_as_long_as_a_line(message):
    answer = found("blocks", message).result
    assert len(framed(answer)) < MAX_HEAD_BYTES
    assert answer.failure is not None
    assert answer.failure.name == "InvalidRequestError"


def test_documents_to_be_scored_may_be_longer():
    documents = [LONG[:MAX_HEAD_BYTES]] * 2
    answer = found("rerank", {"id": "r", "query": "q", "documents": documents}).result
    assert answer.request is not None
    assert answer.request.job is not None


@each_case(
    ("kind", "content"),
    [
        ("text", {"messages": [{"role": "user", "content": "hello"}]}),
        ("blocks", {"messages": blocks()["messages"]}),
        ("embed", {"input": ["x"]}),
        ("rerank", {"query": "q", "documents": ["x"]}),
    ],
)
def test_the_model_that_a_request_names_is_passed_on(kind, content):
    head = found(kind, {"id": "r", "model": "m", **content}).result.request
    assert head is not None
    assert head.model == "m"
    head = found(kind, {"id": "r", "model": "m" * 129, **content}).result.request
    assert head is not None
    assert head.refusal is not None
    assert (head.refusal.name, head.model) == ("InvalidRequestError", None)


@each_case(
    ("kind", "content"),
    [
        ("text", {"messages": [{"role": "user", "content": "hello"}]}),
        ("blocks", {"messages": blocks()["messages"]}),
        ("embed", {"input": ["x"]}),
        ("rerank", {"query": "q", "documents": ["x"]}),
    ],
)
def test_unknown_fields_of_a_strict_request_are_a_refusal_with_its_id(kind, content):
    for strict in (True, False):
        message = {"id": "r", "strict": strict, "temprature": 1, **content}
        head = found(kind, message).result.request
        assert head is not None
        assert (head.refusal is not None, head.job is None) == (strict, strict)
        assert KINDS[kind].read_head(head)[0].id == "r"
        if head.refusal is not None:
            assert head.refusal.name == "InvalidRequestError"
            assert head.refusal.text.startswith("strict: no such field: temprature; ")


def test_a_large_line_of_type_describe_is_refused_as_such():
    failure = found("blocks", {"type": "describe", "id": "r"}).result.failure
    assert failure is not None
    assert "a line of type describe" in failure.text
