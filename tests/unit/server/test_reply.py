import pytest
import trio
import trio.testing
from msgspec import UNSET, Raw

from inferd import errors
from inferd.errors import (
    BackendUnavailableError,
    ContextOverflowError,
    DrainingError,
    FrameTooLargeError,
    InternalError,
    InvalidFrameError,
    InvalidRequestError,
    QueueFullError,
)
from inferd.server.reply import PeerGoneError, Reply, error_frame
from inferd.wire.responses import (
    DoneFrame,
    EmbeddingsFrame,
    EncodeUsage,
    TokenFrame,
    Usage,
)
from tests.fakes.streams import FrameClient, open_pair

DONE = DoneFrame(
    id="r",
    content="ab",
    usage=Usage(prompt_tokens=1, completion_tokens=2),
    stop_reason="end",
    backend="b",
)


def token(text: str) -> TokenFrame:
    return TokenFrame(id="r", content=text)


async def test_frames_of_one_send_arrive_in_one_piece():
    async with open_pair() as (ours, theirs):
        await Reply(ours, "r", write_timeout_s=1).send([token("a"), token("b")])
        assert bytes(await theirs.receive_some(10_000)).count(b"\n") == 2


async def test_nothing_to_send_writes_nothing():
    async with open_pair() as (ours, theirs):
        await Reply(ours, "r", write_timeout_s=1).send([])
        await ours.send_eof()
        assert await FrameClient(theirs).rest() == []


async def test_a_terminal_frame_ends_the_reply():
    async with open_pair() as (ours, _):
        reply = Reply(ours, "r", write_timeout_s=1)
        await reply.send([token("a")])
        assert not reply.is_over
        await reply.send([token("b"), DONE])
        assert reply.is_over


@pytest.mark.parametrize("late", [token("late"), DONE])
async def test_no_frame_follows_the_terminal_one(late):
    async with open_pair() as (ours, theirs):
        reply = Reply(ours, "r", write_timeout_s=1)
        await reply.send([DONE])
        with pytest.raises(AssertionError):
            await reply.send([late])
        await ours.send_eof()
        assert len(await FrameClient(theirs).rest()) == 1


async def test_a_terminal_frame_must_be_the_last_of_its_send():
    async with open_pair() as (ours, theirs):
        with pytest.raises(AssertionError):
            await Reply(ours, "r", write_timeout_s=1).send([DONE, token("late")])
        await ours.send_eof()
        assert await FrameClient(theirs).rest() == []


# --- in parts ---------------------------------------------------------------------------

EMBEDDED = EmbeddingsFrame(
    id="r",
    embeddings=Raw(b"[]"),
    dimensions=1,
    model="m",
    usage=EncodeUsage(1),
    backend="b",
)


async def test_a_frame_in_parts_is_one_frame_and_ends_the_reply():
    async with open_pair() as (ours, theirs):
        reply = Reply(ours, "r", write_timeout_s=1)
        await reply.send_in_parts(EMBEDDED, [b"[[1]", b"", b",[2],[3]", b"]"])
        with pytest.raises(AssertionError):
            await reply.send_in_parts(EMBEDDED, [b"[]"])
        await ours.send_eof()
        [frame] = await FrameClient(theirs).rest()
    assert reply.is_over
    assert frame["embeddings"] == [[1], [2], [3]]


async def test_a_frame_in_parts_that_is_too_large_leaves_room_for_an_error(monkeypatch):
    monkeypatch.setattr("inferd.wire.codec.MAX_FRAME_BYTES", 150)
    async with open_pair() as (ours, theirs):
        reply = Reply(ours, "r", write_timeout_s=1)
        with pytest.raises(FrameTooLargeError):
            await reply.send_in_parts(EMBEDDED, [b"[[1]", b",[2]" * 20, b"]"])
        await reply.fail(InternalError("bug 1"))
        await ours.send_eof()
        [frame] = await FrameClient(theirs).rest()
    assert frame["type"] == "error"


async def test_what_a_cancellation_leaves_of_a_frame_in_parts_goes_out_later():
    rows = [b"[[1]", *[b",[0.123456789]" * 4000] * 20, b"]"]
    async with open_pair() as (ours, theirs), trio.open_nursery() as nursery:
        reply = Reply(ours, "r", write_timeout_s=9)
        with trio.CancelScope() as scope:
            nursery.start_soon(cancel_when_blocked, scope)
            await reply.send_in_parts(EMBEDDED, rows)
        assert scope.cancelled_caught
        assert reply.is_over
        nursery.start_soon(flush_and_end, reply, ours)
        [frame] = await FrameClient(theirs).rest()
    assert len(frame["embeddings"]) == 1 + 20 * 4000


async def cancel_when_blocked(scope):
    await trio.testing.wait_all_tasks_blocked()
    scope.cancel()


async def flush_and_end(reply, stream):
    await reply.flush()
    await stream.send_eof()


# --- failures ---------------------------------------------------------------------------


async def test_a_failure_is_one_error_frame_with_the_id():
    async with open_pair() as (ours, theirs):
        reply = Reply(ours, "r-17", write_timeout_s=1)
        await reply.fail(InternalError("bug 1"))
        await ours.send_eof()
        [frame] = await FrameClient(theirs).rest()
    assert reply.is_over
    assert frame == {
        "type": "error",
        "id": "r-17",
        "code": "internal",
        "message": "bug 1",
    }


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (InvalidFrameError("no JSON"), "invalid_request", "decode: no JSON"),
        (InvalidRequestError("no"), "invalid_request", "invalid request: no"),
        (FrameTooLargeError("big"), "frame_too_large", "big"),
        (QueueFullError(depth=3), "queue_full", "queue full"),
        (BackendUnavailableError("gone"), "backend_unavailable", "gone"),
        (InternalError("bug 1"), "internal", "bug 1"),
    ],
)
def test_an_error_frame_says_code_and_message(error, code, message):
    frame = error_frame("r", error)
    assert (frame.id, frame.code, frame.message) == ("r", code, message)


def test_an_overflow_says_its_numbers():
    frame = error_frame("r", ContextOverflowError(prompt_tokens=130, n_ctx=100))
    assert (frame.prompt_tokens, frame.n_ctx, frame.tokens_over) == (130, 100, 31)
    assert frame.at_least is UNSET


def test_an_overflow_tells_where_its_numbers_are_the_least_that_they_may_be():
    error = ContextOverflowError(prompt_tokens=230, n_ctx=100, at_least=True)
    frame = error_frame("r", error)
    assert (frame.tokens_over, frame.at_least) == (131, True)


@pytest.mark.parametrize("retry_after_ms", [None, 250])
def test_a_full_queue_says_how_full_and_when_to_come_back_if_that_is_known(
    retry_after_ms,
):
    frame = error_frame("r", QueueFullError(depth=3, retry_after_ms=retry_after_ms))
    assert frame.queue_depth == 3
    assert frame.retry_after_ms == (retry_after_ms or UNSET)


def test_every_error_with_a_code_has_an_error_frame():
    for error in (DrainingError(), errors.EmbedUnsupportedError()):
        assert error_frame("r", error).code is error.code


async def test_a_client_that_stops_reading_is_gone_after_the_timeout(autojump_clock):
    async with open_pair() as (ours, _):
        reply = Reply(ours, "r", write_timeout_s=7)
        with pytest.raises(PeerGoneError):
            await reply.send([token("x" * 10_000_000)])
    assert trio.current_time() == 7


async def test_what_no_buffer_holds_arrives_whole(autojump_clock, nursery):
    text = "".join(map(str, range(200_000)))
    async with open_pair() as (ours, theirs):
        nursery.start_soon(Reply(ours, "r", write_timeout_s=7).send, [token(text)])
        await trio.testing.wait_all_tasks_blocked()
        frame = await FrameClient(theirs).frame()
    assert frame == {"type": "token", "id": "r", "content": text}


async def test_a_client_that_left_is_gone(autojump_clock):
    async with open_pair() as (ours, theirs):
        await theirs.aclose()
        with pytest.raises(PeerGoneError):
            await Reply(ours, "r", write_timeout_s=7).send([token("a")])


async def test_a_closed_connection_is_a_peer_that_is_gone():
    async with open_pair() as (ours, _):
        await ours.aclose()
        with pytest.raises(PeerGoneError):
            await Reply(ours, "r", write_timeout_s=7).fail(QueueFullError(depth=3))


async def test_a_frame_over_the_cap_is_not_written_and_leaves_room_for_an_error(
    monkeypatch,
):
    monkeypatch.setattr("inferd.wire.codec.MAX_FRAME_BYTES", 200)
    async with open_pair() as (ours, theirs):
        reply = Reply(ours, "r", write_timeout_s=1)
        with pytest.raises(FrameTooLargeError) as caught:
            await reply.send([token("a"), token("x" * 200)])
        await reply.fail(caught.value)
        await ours.send_eof()
        [frame] = await FrameClient(theirs).rest()
    assert frame["code"] == "frame_too_large"
