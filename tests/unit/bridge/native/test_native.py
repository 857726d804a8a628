"""The daemon's own protocol over HTTP: what is taken, and what comes back."""

import json
from typing import Any

import pytest
from msgspec import UNSET, Raw

from inferd.bridge.native.api import describe_models
from inferd.bridge.native.appended import AppendedLines
from inferd.bridge.native.failures import error_frame, failure_line
from inferd.bridge.native.request import (
    ask_blocks,
    ask_live,
    ask_recording,
    ask_vectors,
)
from inferd.bridge.recordings.form import Form
from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.bridge.translation.question import Asked
from inferd.client.core.failures import QueueFull
from inferd.client.frames import ClientBlocksDone, ClientErrorFrame
from inferd.limits.bridge import APPENDED_LINE_BYTES
from inferd.wire.blocks import BlocksRequest
from inferd.wire.responses import BlockFrame, ProgressFrame, TextDelta, UsageV2
from tests.cases import each_case

ASKED = Asked(request_id="req_1", created_s=0, default_max_tokens=77)
HI = {"role": "user", "content": [{"type": "text", "text": "hi"}]}
OPEN = {"kind": "audio", "id": "s", "sample_rate": 16_000, "open": True}


def body(**fields: Any) -> bytes:
    return json.dumps({"id": "mine", "messages": [HI], **fields}, indent=2).encode()


def append(**fields: Any) -> bytes:
    line = {"type": "append", "id": "mine", "attachment_id": "s", **fields}
    return json.dumps(line).encode() + b"\n"


def test_lines_of_sound_are_read_as_they_come_and_end_once():
    sound = AppendedLines("mine", "s")
    whole = append(bytes="AAAAAA==") + b"\n" + append(bytes="AAAA", end=True)
    read = [each for cut in (whole[:20], whole[20:]) for each in sound.read(cut)]
    assert read == [(bytes(4), False), (bytes(3), True)]
    assert sound.has_ended
    with pytest.raises(BridgeError, match="has ended"):
        [*sound.read(append())]


@each_case(
    "line",
    [
        append(id="other"),
        append(attachment_id="t"),
        append(fd=0),
        append(bytes="?"),
        append(type="cancel"),
        b"no json\n",
        b"x" * (APPENDED_LINE_BYTES + 1),
    ],
)
def test_other_lines_behind_a_request_are_refused(line):
    with pytest.raises(BridgeError):
        [*AppendedLines("mine", "s").read(line)]


def test_a_request_with_live_sound_has_one_open_attachment_and_no_other():
    question = ask_live(body(attachments=[OPEN]), ASKED)
    assert question.appended is not None
    for attachments in ([], [OPEN, OPEN], [{**OPEN, "open": False, "bytes": "AAAA"}]):
        with pytest.raises(BridgeError):
            ask_live(body(attachments=attachments), ASKED)


def test_a_request_goes_on_as_it_is_under_an_id_of_the_bridge():
    schema = {"type": "json_schema", "schema": {"type": "object"}}
    question = ask_blocks(body(response_format=schema, seed=3), ASKED)
    assert isinstance(question.request, BlocksRequest)
    assert question.request.id == "req_1"
    assert (question.request.seed, question.request.max_tokens) == (3, 77)
    form = question.request.response_format
    assert form is not None
    assert form.schema == Raw(b'{"type":"object"}')


@each_case(
    ("fields", "reason"),
    [
        ({"principal": "ada"}, Reason.UNSUPPORTED),
        ({"attachments": [OPEN]}, Reason.INVALID_REQUEST),
        ({"strict": True, "temprature": 1}, Reason.UNKNOWN_FIELD),
        ({"messages": "hi"}, Reason.INVALID_REQUEST),
    ],
)
def test_what_cannot_come_over_http_is_refused(fields, reason):
    with pytest.raises(BridgeError) as refused:
        ask_blocks(body(**fields), ASKED)
    assert refused.value.reason is reason


def test_a_recording_is_the_one_open_attachment():
    form = Form((("request", body(attachments=[OPEN]).decode()),), b"RIFF")
    question = ask_recording(form, ASKED)
    assert [(each.attachment_id, each.data) for each in question.media] == [
        ("s", b"RIFF"),
    ]
    assert isinstance(question.request, BlocksRequest)
    assert question.request.max_tokens is None
    for fields in ((), (("request", body().decode()),), (*form.fields, ("x", "y"))):
        with pytest.raises(BridgeError):
            ask_recording(Form(fields, b"RIFF"), ASKED)
    with pytest.raises(BridgeError):
        ask_vectors(b"\xff", ASKED)


def test_frames_come_back_under_the_callers_id_whatever_the_end():
    usage = UsageV2(5, 1)
    frames = (
        ProgressFrame(id="req_1", status="prefill", processed=2, total=5),
        BlockFrame(id="req_1", block=TextDelta("a")),
        ClientBlocksDone(id="req_1", stop_reason="cancelled", usage=usage, backend="m"),
    )
    for tells_progress in (False, True):
        answer = ask_blocks(body(progress=tells_progress), ASKED).answer
        lines = [json.loads(line) for each in frames for line in answer.add(each)]
        assert len(lines) == 2 + tells_progress
        assert {line["id"] for line in lines} == {"mine"}
        assert lines[-1]["stop_reason"] == "cancelled"
        assert answer.n_tokens == 6


def test_a_failure_is_the_daemons_own_frame_or_has_its_code():
    told = ClientErrorFrame(
        id="req_1", code="queue_full", message="full", queue_depth=4, retry_after_ms=9
    )
    failure = BridgeError(Reason.QUEUE_FULL, "full")
    failure.__cause__ = QueueFull(told)
    frame = error_frame(failure, "mine")
    assert (frame.id, frame.queue_depth, frame.retry_after_ms) == ("mine", 4, 9)
    line = json.loads(failure_line(BridgeError(Reason.UNAUTHENTICATED, "no token")))
    assert line == {
        "type": "error",
        "id": "",
        "code": "permission_denied",
        "message": "no token",
    }
    assert error_frame(BridgeError(Reason.CODING, "gzip")).retry_after_ms is UNSET
    assert json.loads(describe_models(b'{"id":"m"}', [], 0))["models"] == []
