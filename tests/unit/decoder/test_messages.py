import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from inferd.decoder.messages import (
    ANSWER,
    ASK,
    LENGTH_BYTES,
    Answer,
    Ask,
    Failure,
    Kind,
    error_of,
    failure_of,
    framed,
    makes_sense,
    most_bytes,
)
from inferd.decoder.read import read
from inferd.errors import (
    AttachmentsTooLargeError,
    AttachmentUnsupportedError,
    FrameTooLargeError,
    InternalError,
    InvalidFrameError,
    InvalidRequestError,
)
from inferd.job import Media, TranscribeJob
from inferd.limits import MAX_IPC_MESSAGE_BYTES
from inferd.wire.requests import GenerateRequest


@pytest.mark.parametrize(
    "kind",
    [
        InvalidFrameError,
        InvalidRequestError,
        AttachmentsTooLargeError,
        AttachmentUnsupportedError,
        FrameTooLargeError,
    ],
)
def test_a_failure_of_a_client_is_the_same_behind_the_process(kind):
    error = error_of(failure_of(kind("what is wrong"), most_chars=100))
    assert (type(error), error.message) == (kind, kind("what is wrong").message)


@pytest.mark.parametrize(
    "name", ["PermissionDeniedError", "StrEnum", "no such", "", "ContextOverflowError"]
)
def test_a_process_can_make_no_other_failure(name):
    assert isinstance(error_of(Failure(name, "text")), InternalError)


def test_a_long_failure_is_cut_off():
    assert failure_of(InvalidRequestError("x" * 100), most_chars=10).text == "x" * 10


def test_a_message_has_its_length_before_it():
    ask = Ask(kind="text", n_bytes=7, seed=1, owner=2)
    for message, decoder in ((ask, ASK), (Answer(cancel="r"), ANSWER)):
        data = framed(message)
        assert int.from_bytes(data[:LENGTH_BYTES], "little") == len(data) - LENGTH_BYTES
        assert decoder.decode(data[LENGTH_BYTES:]) == message


# --- answers that nobody should have to go on with ----------------------------------------

SOUND = {"kind": "audio", "id": "a", "sample_rate": 16000, "bytes": "AAAAAA=="}
HEARD = {
    "id": "r",
    "messages": [
        {"role": "user", "content": [{"type": "audio", "attachment_id": "a"}]}
    ],
    "attachments": [SOUND],
}
LINES: dict[Kind, dict[str, Any]] = {
    "text": {"id": "r", "messages": [{"role": "user", "content": "hello"}]},
    "blocks": HEARD,
    "embed": {"id": "r", "input": ["a", "b"]},
    "rerank": {"id": "r", "query": "q", "documents": ["a"]},
}
REFUSED: dict[Kind, dict[str, Any]] = {
    "text": {"id": "r", "messages": []},
    "blocks": {**HEARD, "attachments": []},
    "embed": {"id": "r", "input": []},
    "rerank": {"id": "r", "query": "", "documents": []},
}
CANCEL = {"type": "cancel", "id": "r"}
APPEND = {"type": "append", "id": "r", "attachment_id": "a", "bytes": "AAAA"}


def answered(kind: Kind, message: dict[str, Any]) -> tuple[Ask, Answer]:
    line = json.dumps(message).encode()
    ask = Ask(kind=kind, n_bytes=len(line), seed=1, owner=7, marker="mark")
    return ask, read(ask, line).answer


@pytest.mark.parametrize("kind", LINES)
def test_what_a_line_comes_to_makes_sense(kind):
    for message in (LINES[kind], REFUSED[kind], CANCEL, {"no": "request"}):
        ask, answer = answered(kind, message)
        assert makes_sense(ask, answer)
        assert len(framed(answer)) <= most_bytes(ask)
    ask, answer = answered("blocks", APPEND)
    assert makes_sense(ask, answer)
    assert not makes_sense(replace(ask, kind="text"), answer)


@pytest.mark.parametrize("kind", LINES)
@pytest.mark.parametrize("other", LINES)
def test_what_a_line_of_another_surface_comes_to_makes_none(kind, other):
    ask, _ = answered(kind, LINES[kind])
    _, answer = answered(other, LINES[other])
    assert makes_sense(ask, answer) is (kind == other)


def of_request(**fields: Any) -> Callable[[Answer], Answer]:
    def change(answer: Answer) -> Answer:
        assert answer.request is not None
        return replace(answer, request=replace(answer.request, **fields))

    return change


def with_owner(answer: Answer) -> Answer:
    assert answer.request is not None
    assert answer.request.job is not None
    return of_request(job=replace(answer.request.job, owner=8))(answer)


FAILURE = Failure("InvalidRequestError", "no")
WRONG: dict[str, Callable[[Answer], Answer]] = {
    "nothing": lambda _: Answer(),
    "a cancel as well": lambda answer: replace(answer, cancel="r"),
    "a failure as well": lambda answer: replace(answer, failure=FAILURE),
    "no sections": lambda answer: replace(answer, sections=[]),
    "a section more": lambda answer: replace(answer, sections=[*answer.sections, 0]),
    "a section of less than nothing": lambda answer: replace(answer, sections=[9, -1]),
    "sections that take all memory": lambda answer: replace(
        answer, sections=[MAX_IPC_MESSAGE_BYTES] * 2
    ),
    "a failure with a section": lambda _: Answer(failure=FAILURE, sections=[1]),
    "a cancel with a section": lambda _: Answer(cancel="r", sections=[1]),
    "no job": of_request(job=None),
    "a job that is refused": of_request(refusal=FAILURE),
    "no request": of_request(blocks=None),
    "a second request": of_request(text=GenerateRequest(messages=[])),
    "a need that nobody knows": of_request(needs=[["no such need"]]),
    "a need that is none": of_request(needs=[["takes_rate", 1, "a"]]),
    "a field of the log": of_request(facts={"event": 1}),
    "another user's job": with_owner,
    "another user's speech": of_request(
        transcription=TranscribeJob(
            owner=8, audio=Media(kind="audio", id="a", n_bytes=4)
        )
    ),
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_an_answer_that_no_line_can_have_makes_no_sense(change):
    ask, answer = answered("blocks", HEARD)
    assert makes_sense(ask, answer)
    assert not makes_sense(ask, change(answer))
