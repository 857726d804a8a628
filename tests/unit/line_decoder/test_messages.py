import json
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from inferd import errors
from inferd.backend.job import Media, TranscribeJob
from inferd.errors import (
    ContextOverflowError,
    InternalError,
    InvalidRequestError,
    PeerError,
)
from inferd.limits.engine import MAX_IPC_MESSAGE_BYTES
from inferd.line_decoder.decode import decode_large_line
from inferd.line_decoder.kinds import KINDS, is_plausible, max_result_bytes
from inferd.line_decoder.messages import (
    LENGTH_BYTES,
    RESULT_DECODER,
    TASK_DECODER,
    DecodeFailure,
    DecodeResult,
    DecodeTask,
    error_of,
    failure_of,
    framed,
)
from inferd.wire.blocks import BlocksRequest
from inferd.wire.requests import CancelLine
from tests.cases import each_case

NEVER_RAISED_BY_A_DECODER = {ContextOverflowError}
"""It counts no tokens."""


def subclasses(kind: type[PeerError]) -> Iterator[type[PeerError]]:
    for each in kind.__subclasses__():
        yield each
        yield from subclasses(each)


def peer_errors() -> list[type[PeerError]]:
    """The classes of errors.py that say what is wrong with a request."""
    found: list[type[PeerError]] = [PeerError, *subclasses(PeerError)]
    return [each for each in found if each.__module__ == errors.__name__]


@each_case(
    "kind", [each for each in peer_errors() if each not in NEVER_RAISED_BY_A_DECODER]
)
def test_a_failure_of_a_client_is_the_same_behind_the_process(kind):
    error = error_of(failure_of(kind("what is wrong"), max_chars=100))
    assert (type(error), error.message) == (kind, kind("what is wrong").message)


def test_an_error_with_a_constructor_of_its_own_is_none_of_a_decoder(monkeypatch):
    inheriting = type("InheritingError", (ContextOverflowError,), {})
    monkeypatch.setattr(errors, "InheritingError", inheriting, raising=False)
    assert isinstance(error_of(DecodeFailure("InheritingError", "t")), InternalError)


@each_case(
    "name", ["PermissionDeniedError", "StrEnum", "no such", "", "ContextOverflowError"]
)
def test_a_process_can_make_no_other_failure(name):
    assert isinstance(error_of(DecodeFailure(name, "text")), InternalError)


def test_a_long_failure_is_cut_off():
    assert failure_of(InvalidRequestError("x" * 100), max_chars=10).text == "x" * 10


def test_a_message_has_its_length_before_it():
    ask = DecodeTask(kind="text", n_bytes=7, seed=1, owner=2)
    for message, decoder in (
        (ask, TASK_DECODER),
        (DecodeResult(cancel=CancelLine(id="r")), RESULT_DECODER),
    ):
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
LINES: dict[str, dict[str, Any]] = {
    "text": {"id": "r", "messages": [{"role": "user", "content": "hello"}]},
    "blocks": HEARD,
    "embed": {"id": "r", "input": ["a", "b"]},
    "rerank": {"id": "r", "query": "q", "documents": ["a"]},
}
REFUSED: dict[str, dict[str, Any]] = {
    "text": {"id": "r", "messages": []},
    "blocks": {**HEARD, "attachments": []},
    "embed": {"id": "r", "input": []},
    "rerank": {"id": "r", "query": "", "documents": []},
}
CANCEL = {"type": "cancel", "id": "r"}
APPEND = {"type": "append", "id": "r", "attachment_id": "a", "bytes": "AAAA"}


def answered(kind: str, message: dict[str, Any]) -> tuple[DecodeTask, DecodeResult]:
    line = json.dumps(message).encode()
    ask = DecodeTask(kind=kind, n_bytes=len(line), seed=1, owner=7, marker="mark")
    return ask, decode_large_line(ask, line).result


@each_case("kind", LINES)
def test_results_of_its_own_surface_are_plausible(kind):
    for message in (LINES[kind], REFUSED[kind], CANCEL, {"no": "request"}):
        ask, answer = answered(kind, message)
        assert is_plausible(ask, answer)
        assert len(framed(answer)) <= max_result_bytes(KINDS[ask.kind])
    ask, answer = answered("blocks", APPEND)
    assert is_plausible(ask, answer)
    assert not is_plausible(replace(ask, kind="text"), answer)


@each_case("kind", LINES)
@each_case("other", LINES)
def test_results_of_another_surface_are_implausible(kind, other):
    ask, _ = answered(kind, LINES[kind])
    _, answer = answered(other, LINES[other])
    assert is_plausible(ask, answer) is (kind == other)


def of_request(**fields: Any) -> Callable[[DecodeResult], DecodeResult]:
    def change(answer: DecodeResult) -> DecodeResult:
        assert answer.request is not None
        return replace(answer, request=replace(answer.request, **fields))

    return change


def with_owner(answer: DecodeResult) -> DecodeResult:
    assert answer.request is not None
    assert answer.request.job is not None
    return of_request(job=replace(answer.request.job, owner=8))(answer)


FAILURE = DecodeFailure("InvalidRequestError", "no")
WRONG: dict[str, Callable[[DecodeResult], DecodeResult]] = {
    "nothing": lambda _: DecodeResult(),
    "a cancel as well": lambda answer: replace(answer, cancel="r"),
    "a failure as well": lambda answer: replace(answer, failure=FAILURE),
    "no sections": lambda answer: replace(answer, sections=[]),
    "a section more": lambda answer: replace(answer, sections=[*answer.sections, 0]),
    "a section of less than nothing": lambda answer: replace(answer, sections=[9, -1]),
    "sections that take all memory": lambda answer: replace(
        answer, sections=[MAX_IPC_MESSAGE_BYTES] * 2
    ),
    "a failure with a section": lambda _: DecodeResult(failure=FAILURE, sections=[1]),
    "a cancel with a section": lambda _: DecodeResult(
        cancel=CancelLine(id="r"), sections=[1]
    ),
    "no job": of_request(job=None),
    "a job that is refused": of_request(refusal=FAILURE),
    "a request of another kind": of_request(kind="text"),
    "no request": of_request(request=Raw(msgspec.msgpack.encode(None))),
    "no message": of_request(request=Raw(b"\xc1")),
    "nothing of a message": of_request(request=Raw(b"")),
    "a request with an attachment less": of_request(
        request=Raw(msgspec.msgpack.encode(BlocksRequest(messages=[])))
    ),
    "a need that nobody knows": of_request(needs=[["no such need"]]),
    "a need that is none": of_request(needs=[["takes_rate", 1, "a"]]),
    "a field of the log": of_request(stats={"event": 1}),
    "another user's job": with_owner,
    "another user's speech": of_request(
        transcription=TranscribeJob(
            owner=8, audio=Media(kind="audio", id="a", n_bytes=4)
        )
    ),
}


@each_case("change", WRONG.values(), ids=WRONG)
def test_impossible_results_are_implausible(change):
    ask, answer = answered("blocks", HEARD)
    assert is_plausible(ask, answer)
    assert not is_plausible(ask, change(answer))
