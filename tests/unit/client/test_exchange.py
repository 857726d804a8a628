import pytest
from hypothesis import given, settings, strategies as st

from inferd.client.exchange import (
    ClientError,
    ConnectionLostError,
    Exchange,
    ProtocolError,
    RequestFailedError,
    StatusStream,
)
from inferd.errors import ErrorCode
from inferd.wire.codec import decode_request, encode
from inferd.wire.requests import ChatMessage, GenerateRequest
from inferd.wire.responses import DoneFrame, ErrorFrame, TokenFrame, Usage
from inferd.wire.status import AnyStatus, LifecycleFrame
from tests.unit.strategies import chunked

REQUEST = GenerateRequest(id="r", messages=[ChatMessage("user", "hi")])
DONE = DoneFrame(
    id="r", content="", usage=Usage(1, 1), stop_reason="end", backend="mock"
)
REFUSED = ErrorFrame(id="r", code=ErrorCode.QUEUE_FULL, message="queue full")
TERMINALS = st.sampled_from([DONE, REFUSED])


def started(request=REQUEST):
    exchange = Exchange()
    exchange.start(request)
    return exchange


def token(text, request_id="r"):
    return TokenFrame(id=request_id, content=text)


def lines(*frames):
    return b"".join(map(encode, frames))


def test_a_request_is_sent_as_one_line():
    exchange = Exchange()
    assert exchange.is_over
    assert decode_request(exchange.start(REQUEST)) == REQUEST
    assert not exchange.is_over


@settings(max_examples=50)
@given(st.lists(st.text(max_size=4).map(token), max_size=4), TERMINALS, st.data())
def test_any_chunking_gives_the_same_responses(tokens, terminal, data):
    exchange = started()
    received = []
    for chunk in data.draw(chunked(lines(*tokens, terminal))):
        if chunk:
            assert not exchange.is_over
            received += exchange.feed(chunk)
    assert received == [*tokens, terminal]
    assert exchange.is_over


def test_the_next_request_may_follow_on_the_same_connection():
    exchange = started()
    assert exchange.feed(lines(DONE)) == [DONE]
    exchange.start(REQUEST)
    assert exchange.feed(lines(token("a"))) == [token("a")]
    assert not exchange.is_over


def test_one_request_at_a_time():
    exchange = started()
    with pytest.raises(ClientError, match="not complete"):
        exchange.start(REQUEST)
    assert exchange.feed(lines(DONE)) == [DONE]


@pytest.mark.parametrize("sent", [b"", lines(token("a")), b'{"type":"done"'])
def test_an_end_before_the_terminal_frame_is_a_lost_connection(sent):
    exchange = started()
    if sent:
        exchange.feed(sent)
    with pytest.raises(ConnectionLostError):
        exchange.feed(b"")


def test_an_error_about_the_connection_ends_any_request():
    refusal = ErrorFrame(id="", code=ErrorCode.FRAME_TOO_LARGE, message="too large")
    exchange = started()
    assert exchange.feed(lines(refusal)) == [refusal]
    assert exchange.is_over


@pytest.mark.parametrize(
    "sent",
    [
        lines(token("a", "another")),
        lines(token("a", "")),
        lines(DONE, token("late")),
        lines(DONE, DONE),
        *(b"\n", b"null\n", b'{"type":"status","id":"r"}\n', b'{"type":"token"}\n'),
    ],
)
def test_what_is_no_answer_to_us_is_refused(sent):
    with pytest.raises(ProtocolError):
        started().feed(sent)


@pytest.mark.parametrize("request_id", ["", "r"])
def test_an_answer_to_nobody_is_refused(request_id):
    error = ErrorFrame(id=request_id, code=ErrorCode.QUEUE_FULL, message="queue full")
    with pytest.raises(ProtocolError, match=f"'{request_id}', which is not ours"):
        Exchange().feed(lines(error))


def test_a_line_without_end_is_refused():
    exchange = started()
    exchange._splitter._max_frame_bytes = 8
    with pytest.raises(ProtocolError, match="exceeds 8 byte cap"):
        exchange.feed(b'{"type":"t')


def test_a_request_over_the_cap_leaves_the_connection_as_it_was(monkeypatch):
    exchange = Exchange()
    with monkeypatch.context() as patch:
        patch.setattr("inferd.wire.codec.MAX_FRAME_BYTES", 8)
        with pytest.raises(ClientError):
            exchange.start(REQUEST)
    assert exchange.is_over
    exchange.start(REQUEST)


def test_a_failed_request_says_code_and_sentence():
    error = RequestFailedError(REFUSED)
    assert (error.code, error.frame) == (ErrorCode.QUEUE_FULL, REFUSED)
    assert str(error) == "queue_full: queue full"


# --- the admin socket -------------------------------------------------------------------

READY = LifecycleFrame(status="ready")
DIED = LifecycleFrame(status="restarting", reason="killed by SIGKILL")


@settings(max_examples=50)
@given(chunked(lines(READY, DIED) + b'{"status":'))
def test_any_chunking_gives_the_same_statuses(chunks):
    stream = StatusStream()
    assert [status for chunk in chunks for status in stream.feed(chunk)] == [
        (encode(READY)[:-1], AnyStatus(status="ready")),
        (encode(DIED)[:-1], AnyStatus(status="restarting", reason="killed by SIGKILL")),
    ]


@pytest.mark.parametrize("line", [b"220 mail ESMTP\n", b"\n", b'{"status":1}\n'])
def test_who_does_not_speak_of_a_status_is_refused(line):
    with pytest.raises(ProtocolError):
        StatusStream().feed(lines(READY) + line)


def test_a_status_without_end_is_refused():
    stream = StatusStream()
    stream._splitter._max_frame_bytes = 8
    with pytest.raises(ProtocolError, match="exceeds 8 byte cap"):
        stream.feed(b"x" * 9)
