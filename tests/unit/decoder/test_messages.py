import pytest

from inferd.decoder.messages import (
    ANSWER,
    ASK,
    LENGTH_BYTES,
    Answer,
    Ask,
    Failure,
    error_of,
    failure_of,
    framed,
)
from inferd.errors import (
    AttachmentsTooLargeError,
    AttachmentUnsupportedError,
    FrameTooLargeError,
    InternalError,
    InvalidFrameError,
    InvalidRequestError,
)


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


@pytest.mark.parametrize("name", ["PermissionDeniedError", "StrEnum", "no such", ""])
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
