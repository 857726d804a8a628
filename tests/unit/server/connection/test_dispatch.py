import gc
import re
import weakref

import pytest
import trio
from structlog.testing import capture_logs

from inferd import surfaces
from inferd.backend.caller import NO_CALLER, Caller
from inferd.errors import (
    CancelledError,
    DeadlineExceededError,
    DrainingError,
    InferdError,
    QueueFullError,
)
from inferd.server.connection.dispatch import RefusingService, Service, dispatch
from inferd.server.connection.output_quota import OutputQuota
from inferd.server.connection.response_writer import PeerGoneError, ResponseWriter
from inferd.server.identity.peer import Peer
from inferd.server.request_context import RequestContext
from inferd.wire.requests import ChatMessage, GenerateRequest
from inferd.wire.responses import DoneFrame, Usage
from tests.fakes.streams import FrameClient, open_pair

REQUEST = GenerateRequest(id="r", messages=[ChatMessage("user", "hello")])
PEER = Peer(pid=17, uid=1000, gid=100)
DONE = DoneFrame(
    id="r",
    content="",
    usage=Usage(prompt_tokens=0, completion_tokens=0),
    stop_reason="end",
    backend="b",
)


def begin() -> RequestContext:
    return RequestContext(PEER, surfaces.INFER, "r", trio.current_time())


class Answers(Service[GenerateRequest]):
    """Ends the response if asked to, then raises an exception."""

    def __init__(self, failure: BaseException | None, *, ends: bool = False) -> None:
        self._failure = failure
        self._ends = ends

    async def answer(
        self, request: GenerateRequest, reply: ResponseWriter, context: RequestContext
    ) -> None:
        if self._ends:
            reply.put([DONE])
            await reply.finish()
            context.done("end")
        if self._failure is not None:
            raise self._failure


class Sleeps(Service[GenerateRequest]):
    async def answer(
        self, request: GenerateRequest, reply: ResponseWriter, context: RequestContext
    ) -> None:
        await trio.sleep_forever()


def make_reply(stream: trio.SocketStream) -> ResponseWriter:
    return ResponseWriter(
        stream, "r", write_timeout_s=1, output_quota=OutputQuota(1000), caller=NO_CALLER
    )


async def outcome_of(service: Service[GenerateRequest]):
    """Dispatch one request; give the result, the frames and the log."""
    async with open_pair() as (ours, theirs):
        reply = make_reply(ours)
        with capture_logs() as log:
            goes_on = await dispatch(service, REQUEST, reply, begin())
        await ours.send_eof()
        return goes_on, await FrameClient(theirs).rest(), log


async def test_an_answered_request_keeps_the_connection():
    goes_on, frames, log = await outcome_of(Answers(None, ends=True))
    assert goes_on
    assert [frame["type"] for frame in frames] == ["done"]
    assert [line["event"] for line in log] == ["request_done"]


async def test_a_refusal_is_the_same_for_every_request():
    refusal = DrainingError()
    for _ in range(2):
        goes_on, [frame], log = await outcome_of(RefusingService(refusal))
        assert not goes_on
        assert (frame["id"], frame["code"]) == ("r", "backend_unavailable")
        assert [line["event"] for line in log] == ["request_refused"]
    assert refusal.__traceback__ is None


async def test_a_failure_becomes_its_error_frame():
    goes_on, [frame], log = await outcome_of(Answers(QueueFullError(depth=3)))
    assert goes_on
    assert (frame["id"], frame["code"]) == ("r", "queue_full")
    assert [line["event"] for line in log] == ["request_refused"]
    assert log[0]["code"] == "queue_full"


async def test_a_failure_that_ends_the_connection_says_so():
    goes_on, [frame], _ = await outcome_of(Answers(DrainingError()))
    assert not goes_on
    assert frame["code"] == "backend_unavailable"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DeadlineExceededError(50), "deadline_exceeded"),
        (CancelledError(), "cancelled"),
    ],
)
async def test_a_stopped_request_keeps_the_connection(error: InferdError, code):
    goes_on, [frame], log = await outcome_of(Answers(error))
    assert goes_on
    assert (frame["code"], log[0]["code"]) == (code, code)


async def test_a_bug_is_told_by_the_number_under_which_it_is_logged():
    goes_on, [frame], log = await outcome_of(Answers(ZeroDivisionError("secret")))
    assert goes_on
    assert frame["code"] == "internal"
    assert re.fullmatch(r"bug [0-9a-f]{8}, see the daemon's log", frame["message"])
    [crash, refusal] = log
    assert crash["event"] == "request.crashed"
    assert crash["exc_info"]
    assert crash["bug"] == frame["message"]
    assert refusal["code"] == "internal"


async def test_two_bugs_have_two_numbers():
    first = await outcome_of(Answers(ZeroDivisionError()))
    second = await outcome_of(Answers(ZeroDivisionError()))
    assert first[1][0]["message"] != second[1][0]["message"]


@pytest.mark.parametrize("failure", [ZeroDivisionError(), QueueFullError(depth=3)])
async def test_a_failure_after_the_terminal_frame_adds_none(failure):
    goes_on, frames, _ = await outcome_of(Answers(failure, ends=True))
    assert goes_on
    assert [frame["type"] for frame in frames] == ["done"]


async def test_a_peer_that_is_gone_is_passed_on_and_logged():
    async with open_pair() as (ours, _):
        with capture_logs() as log, pytest.raises(PeerGoneError):
            await dispatch(
                Answers(PeerGoneError()),
                REQUEST,
                make_reply(ours),
                begin(),
            )
    assert [line["event"] for line in log] == ["request_abandoned"]


async def test_a_cancelled_request_is_logged_and_gets_no_frame(autojump_clock):
    async with open_pair() as (ours, theirs):
        reply = make_reply(ours)
        with capture_logs() as log, trio.move_on_after(3) as scope:
            await dispatch(Sleeps(), REQUEST, reply, begin())
        assert scope.cancelled_caught
        await ours.send_eof()
        assert await FrameClient(theirs).rest() == []
    assert [line["event"] for line in log] == ["request_abandoned"]


async def test_a_refusal_that_is_not_read_is_logged_once(autojump_clock):
    async with open_pair() as (ours, theirs):
        await theirs.aclose()
        reply = make_reply(ours)
        service = Answers(QueueFullError(depth=3))
        with capture_logs() as log, pytest.raises(PeerGoneError):
            await dispatch(service, REQUEST, reply, begin())
    assert [line["event"] for line in log] == ["request_refused"]


@pytest.mark.parametrize("is_known", [True, False])
async def test_a_refused_request_is_freed_as_it_leaves(is_known):
    service: Service[GenerateRequest] = (
        RefusingService(QueueFullError(depth=1))
        if is_known
        else Answers(QueueFullError(depth=1))
    )
    async with open_pair() as (ours, _):
        reply = ResponseWriter(
            ours,
            "r",
            write_timeout_s=1,
            output_quota=OutputQuota(1),
            caller=Caller(PEER.uid),
        )
        freed = weakref.ref(context := begin())
        gc.disable()
        try:
            assert await dispatch(service, REQUEST, reply, context)
            del reply, context
            assert freed() is None
        finally:
            gc.enable()
