import trio
from structlog.testing import capture_logs

from inferd.errors import QueueFullError
from inferd.server.activity import ID_CHARS, Activity
from inferd.server.peer import Peer
from inferd.wire.responses import DoneFrame, Usage

PEER = Peer(pid=17, uid=1000, gid=100)
DONE = DoneFrame(
    id="r",
    content="the answer's text",
    usage=Usage(prompt_tokens=5, completion_tokens=7),
    stop_reason="length",
    backend="chat",
)


def begin(request_id: str = "r") -> Activity:
    return Activity.begin(PEER, "infer.sock", request_id)


async def test_an_answered_request_is_one_line_with_everything(autojump_clock):
    activity = begin()
    activity.backend = "chat"
    await trio.sleep(1)
    activity.started()
    await trio.sleep(0.5)
    activity.spoke()
    await trio.sleep(2)
    activity.spoke()
    with capture_logs() as log:
        activity.done(DONE)
    assert log == [
        {
            "event": "request.finished",
            "log_level": "info",
            "socket": "infer.sock",
            "req_id": "r",
            "peer_uid": 1000,
            "peer_pid": 17,
            "backend": "chat",
            "queued_ms": 1000.0,
            "first_token_ms": 1500.0,
            "total_ms": 3500.0,
            "stop_reason": "length",
            "prompt_tokens": 5,
            "completion_tokens": 7,
        }
    ]


async def test_a_refusal_says_its_code_and_what_is_known(autojump_clock):
    activity = begin()
    await trio.sleep(2)
    with capture_logs() as log:
        activity.refused(QueueFullError())
    [line] = log
    assert (line["event"], line["log_level"]) == ("request.refused", "warning")
    assert line["code"] == "queue_full"
    assert line["queued_ms"] == line["total_ms"] == 2000
    assert "backend" not in line
    assert "first_token_ms" not in line


async def test_a_request_whose_client_left_is_a_line_of_its_own(autojump_clock):
    with capture_logs() as log:
        begin().abandoned()
    [line] = log
    assert (line["event"], line["peer_uid"]) == ("request.abandoned", 1000)


async def test_a_time_of_nought_is_a_time(autojump_clock):
    activity = begin()
    activity.started()
    activity.spoke()
    await trio.sleep(3)
    with capture_logs() as log:
        activity.done(DONE)
    assert (log[0]["queued_ms"], log[0]["first_token_ms"]) == (0, 0)


async def test_an_id_of_any_length_takes_a_bounded_line():
    with capture_logs() as log:
        begin("x" * 1_000_000).abandoned()
    assert log[0]["req_id"] == "x" * ID_CHARS
