import pytest
from hypothesis import given, settings

from inferd.client.admin import AdminExchange, StatusStream
from inferd.client.exchange import ClientError, ConnectionLostError, ProtocolError
from inferd.wire.codec import decode_command, encode
from inferd.wire.commands import Command, Reply
from inferd.wire.status import AnyStatus, LifecycleFrame
from tests.cases import each_case
from tests.unit.strategies import chunked


def lines(*frames):
    return b"".join(map(encode, frames))


# --- statuses ---------------------------------------------------------------------------

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
def test_a_frame_that_is_not_a_status_is_refused(line):
    with pytest.raises(ProtocolError):
        StatusStream().feed(lines(READY) + line)


def test_a_status_without_end_is_refused():
    stream = StatusStream()
    stream._splitter._max_frame_bytes = 8
    with pytest.raises(ProtocolError, match="exceeds 8 byte cap"):
        stream.feed(b"x" * 9)


# --- commands ---------------------------------------------------------------------------

CANCEL = Command(command="cancel", id="r")
REPLY = Reply(command="cancel", ok=True, cancelled=1)
NEWS = b'{"id":"admin","type":"news"}\n'


def test_a_command_is_sent_as_one_line():
    line = AdminExchange(CANCEL).line
    assert line.endswith(b"\n")
    assert decode_command(line) == CANCEL


@settings(max_examples=50)
@given(chunked(lines(READY) + NEWS + lines(DIED, REPLY, READY)))
def test_the_reply_is_found_among_status_frames(chunks):
    order = AdminExchange(CANCEL)
    replies = [order.feed(chunk) for chunk in chunks if chunk]
    assert [reply for reply in replies if reply is not None] == [REPLY]


def test_an_end_before_the_reply_is_a_lost_connection():
    order = AdminExchange(CANCEL)
    assert order.feed(lines(READY)) is None
    with pytest.raises(ConnectionLostError):
        order.feed(b"")


@each_case(
    "line", [b"220 mail ESMTP\n", b"\n", b'{"id":"admin","type":"reply"}\n', b"\xff\n"]
)
def test_an_invalid_reply_is_refused(line):
    with pytest.raises(ProtocolError):
        AdminExchange(CANCEL).feed(line)


def test_a_reply_without_end_is_refused():
    order = AdminExchange(CANCEL)
    order._splitter._max_frame_bytes = 8
    with pytest.raises(ProtocolError, match="exceeds 8 byte cap"):
        order.feed(b"x" * 9)


def test_a_command_that_is_no_text_is_not_sent():
    with pytest.raises(ClientError, match="not valid UTF-8"):
        AdminExchange(Command(command="cancel", id="\udcff"))
