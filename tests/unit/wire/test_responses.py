import pytest

from inferd.errors import ErrorCode
from inferd.wire.codec import encode
from inferd.wire.responses import DoneFrame, ErrorFrame, TokenFrame, Usage

DONE = DoneFrame(
    id="abc123",
    content="Hello",
    usage=Usage(prompt_tokens=12, completion_tokens=7),
    stop_reason="end",
    backend="llamacpp",
)
OVERFLOW = ErrorFrame(
    id="",
    code=ErrorCode.INVALID_REQUEST,
    message="too long",
    prompt_tokens=9,
    n_ctx=8,
    tokens_over=2,
)


@pytest.mark.parametrize(
    ("frame", "line"),
    [
        (
            TokenFrame(id="abc123", content="Hel"),
            '{"type":"token","id":"abc123","content":"Hel"}\n',
        ),
        (
            DONE,
            (
                '{"type":"done","id":"abc123","content":"Hello",'
                '"usage":{"prompt_tokens":12,"completion_tokens":7},'
                '"stop_reason":"end","backend":"llamacpp"}\n'
            ),
        ),
        (
            ErrorFrame(id="a", code=ErrorCode.QUEUE_FULL, message="queue full"),
            '{"type":"error","id":"a","code":"queue_full","message":"queue full"}\n',
        ),
        (
            OVERFLOW,
            (
                '{"type":"error","id":"","code":"invalid_request",'
                '"message":"too long","prompt_tokens":9,"n_ctx":8,"tokens_over":2}\n'
            ),
        ),
    ],
    ids=["token", "done", "error", "overflow"],
)
def test_a_response_is_these_bytes(frame, line):
    assert encode(frame) == line.encode()


def test_nothing_is_left_out_of_a_frame_because_it_is_empty():
    assert encode(TokenFrame(id="", content="")) == (
        b'{"type":"token","id":"","content":""}\n'
    )
    done = DoneFrame(
        id="", content="", usage=Usage(0, 0), stop_reason="length", backend=""
    )
    assert encode(done) == (
        b'{"type":"done","id":"","content":"",'
        b'"usage":{"prompt_tokens":0,"completion_tokens":0},'
        b'"stop_reason":"length","backend":""}\n'
    )
