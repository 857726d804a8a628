import pytest
import trio
import trio.testing
from msgspec import UNSET, Raw

from inferd import errors
from inferd.backend.caller import NO_CALLER, Caller
from inferd.errors import (
    BackendUnavailableError,
    ContextOverflowError,
    DrainingError,
    FrameTooLargeError,
    InternalError,
    InvalidFrameError,
    InvalidRequestError,
    ModelNotFoundError,
    QueueFullError,
)
from inferd.limits.connections import MAX_UNREAD_BYTES, WRITE_BYTES
from inferd.server.connection.output_quota import OutputQuota
from inferd.server.connection.response_writer import (
    PeerGoneError,
    ResponseWriter,
    error_frame,
)
from inferd.wire.responses import (
    DoneFrame,
    EmbeddingsFrame,
    EncodeUsage,
    Response,
    TokenFrame,
    Usage,
)
from tests.cases import each_case
from tests.fakes.streams import FrameClient, open_pair
from tests.fakes.writes import os_writes

DONE = DoneFrame(
    id="r",
    content="ab",
    usage=Usage(prompt_tokens=1, completion_tokens=2),
    stop_reason="end",
    backend="b",
)


def make_reply(
    stream: trio.SocketStream,
    request_id: str = "r",
    *,
    within_s: float = 1,
    output_quota: OutputQuota | None = None,
    caller: Caller = NO_CALLER,
) -> ResponseWriter:
    return ResponseWriter(
        stream,
        request_id,
        write_timeout_s=within_s,
        output_quota=output_quota or OutputQuota(MAX_UNREAD_BYTES),
        caller=caller,
    )


async def send(reply: ResponseWriter, frames: list[Response]):
    reply.put(frames)
    await reply.flush()


def token(text: str) -> TokenFrame:
    return TokenFrame(id="r", content=text)


async def test_frames_of_one_send_arrive_in_one_piece():
    async with open_pair() as (ours, theirs):
        await send(make_reply(ours), [token("a"), token("b")])
        assert bytes(await theirs.receive_some(10_000)).count(b"\n") == 2


async def test_no_frames_write_nothing():
    async with open_pair() as (ours, theirs):
        await send(make_reply(ours), [])
        await ours.send_eof()
        assert await FrameClient(theirs).rest() == []


async def test_a_terminal_frame_ends_the_reply():
    async with open_pair() as (ours, _):
        reply = make_reply(ours)
        await send(reply, [token("a")])
        assert not reply.is_over
        await send(reply, [token("b"), DONE])
        assert reply.is_over


@pytest.mark.parametrize("late", [token("late"), DONE])
async def test_no_frame_follows_the_terminal_one(late):
    async with open_pair() as (ours, theirs):
        reply = make_reply(ours)
        await send(reply, [DONE])
        with pytest.raises(AssertionError):
            await send(reply, [late])
        await ours.send_eof()
        assert len(await FrameClient(theirs).rest()) == 1


async def test_a_terminal_frame_must_be_the_last_of_its_send():
    async with open_pair() as (ours, theirs):
        with pytest.raises(AssertionError):
            await send(make_reply(ours), [DONE, token("late")])
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
        reply = make_reply(ours)
        reply.put_in_parts(EMBEDDED, [b"[[1]", b"", b",[2],[3]", b"]"])
        await reply.flush()
        with pytest.raises(AssertionError):
            reply.put_in_parts(EMBEDDED, [b"[]"])
        await ours.send_eof()
        [frame] = await FrameClient(theirs).rest()
    assert reply.is_over
    assert frame["embeddings"] == [[1], [2], [3]]


async def test_a_frame_in_parts_that_is_too_large_leaves_room_for_an_error(monkeypatch):
    monkeypatch.setattr("inferd.wire.codec.MAX_FRAME_BYTES", 150)
    async with open_pair() as (ours, theirs):
        reply = make_reply(ours)
        with pytest.raises(FrameTooLargeError):
            reply.put_in_parts(EMBEDDED, [b"[[1]", b",[2]" * 20, b"]"])
        await reply.fail(InternalError("bug 1"))
        await ours.send_eof()
        [frame] = await FrameClient(theirs).rest()
    assert frame["type"] == "error"


async def test_what_a_cancellation_leaves_of_a_frame_in_parts_goes_out_later():
    rows = [b"[[1]", *[b",[0.123456789]" * 4000] * 20, b"]"]
    async with open_pair() as (ours, theirs), trio.open_nursery() as nursery:
        reply = make_reply(ours, within_s=9)
        with trio.CancelScope() as scope:
            nursery.start_soon(cancel_when_blocked, scope)
            reply.put_in_parts(EMBEDDED, rows)
            await reply.flush()
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
        reply = make_reply(ours, "r-17")
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


@each_case(
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


@pytest.mark.parametrize("models", [[], ["a", "b"]])
def test_a_model_that_is_not_found_is_told_with_those_that_would_do(models):
    frame = error_frame("r", ModelNotFoundError("x", "is not served here", models))
    assert (frame.code, frame.models) == ("model_not_found", models)


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
        reply = make_reply(ours, within_s=7)
        with pytest.raises(PeerGoneError):
            await send(reply, [token("x" * 10_000_000)])
    assert trio.current_time() == 7


async def test_what_no_buffer_holds_arrives_whole(autojump_clock, nursery):
    text = "".join(map(str, range(200_000)))
    async with open_pair() as (ours, theirs):
        nursery.start_soon(send, make_reply(ours, within_s=7), [token(text)])
        await trio.testing.wait_all_tasks_blocked()
        frame = await FrameClient(theirs).frame()
    assert frame == {"type": "token", "id": "r", "content": text}


async def test_no_step_offers_more_than_one_write_to_a_client(monkeypatch, nursery):
    async with open_pair() as (ours, theirs):
        client, answers = FrameClient(theirs), []

        async def read() -> None:
            answers.append(await client.answer())

        nursery.start_soon(read)
        reply = make_reply(ours)
        with os_writes(monkeypatch) as steps:
            reply.put([token("x" * 2_000_000), DONE])
            await reply.finish()
        await trio.testing.wait_all_tasks_blocked()
    assert [len(answer) for answer in answers] == [2]
    assert max(steps.n_bytes.values()) == WRITE_BYTES
    assert steps.n_bytes.total() > 2_000_000


async def test_a_client_that_left_is_gone(autojump_clock):
    async with open_pair() as (ours, theirs):
        await theirs.aclose()
        with pytest.raises(PeerGoneError):
            await send(make_reply(ours, within_s=7), [token("a")])


async def test_a_closed_connection_is_a_peer_that_is_gone():
    async with open_pair() as (ours, _):
        await ours.aclose()
        with pytest.raises(PeerGoneError):
            await make_reply(ours, within_s=7).fail(QueueFullError(depth=3))


async def test_a_frame_over_the_cap_is_not_written_and_leaves_room_for_an_error(
    monkeypatch,
):
    monkeypatch.setattr("inferd.wire.codec.MAX_FRAME_BYTES", 200)
    async with open_pair() as (ours, theirs):
        reply = make_reply(ours)
        with pytest.raises(FrameTooLargeError) as caught:
            await send(reply, [token("a"), token("x" * 200)])
        await reply.fail(caught.value)
        await ours.send_eof()
        before, frame = await FrameClient(theirs).rest()
    assert before["content"] == "a"
    assert frame["code"] == "frame_too_large"


# --- the rest of an answer --------------------------------------------------------------


async def test_unwritten_output_counts_while_it_is_written(autojump_clock, nursery):
    output_quota = OutputQuota(MAX_UNREAD_BYTES)
    async with open_pair() as (ours, theirs):
        reply = make_reply(ours, output_quota=output_quota)
        reply.put([token("x" * 1_000_000), DONE])
        nursery.start_soon(reply.finish)
        await trio.testing.wait_all_tasks_blocked()
        assert 1_000_000 - 300_000 < output_quota.n_bytes < 1_001_000
        assert len(await FrameClient(theirs).answer()) == 2
        await trio.testing.wait_all_tasks_blocked()
    assert output_quota.n_bytes == 0


async def test_output_that_is_written_at_once_does_not_count(monkeypatch):
    output_quota = OutputQuota(1)
    monkeypatch.setattr(output_quota, "reserve", None)
    async with open_pair() as (ours, theirs):
        reply = make_reply(ours, output_quota=output_quota)
        reply.put([token("a"), DONE])
        await reply.finish()
        assert len(await FrameClient(theirs).answer()) == 2


async def test_an_answer_over_the_output_quota_is_dropped(autojump_clock):
    output_quota = OutputQuota(1_000_000)
    async with open_pair() as (ours, _):
        reply = make_reply(ours, within_s=9, output_quota=output_quota)
        reply.put([token("x" * 900_000), DONE])

        async def come_later():
            await trio.sleep(3)
            with output_quota.reserve(NO_CALLER, 900_000):
                await trio.sleep_forever()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(come_later)
            with pytest.raises(PeerGoneError):
                await reply.finish()
            nursery.cancel_scope.cancel()
    assert trio.current_time() == 3


async def test_a_long_id_is_not_repeated_in_memory(autojump_clock, nursery):
    request_id = "i" * 100_000
    output_quota = OutputQuota(MAX_UNREAD_BYTES)
    async with open_pair() as (ours, theirs):
        reply = make_reply(ours, output_quota=output_quota)
        frames = [TokenFrame(id=request_id, content="a") for _ in range(50)]
        reply.put([*frames, DONE])
        nursery.start_soon(reply.finish)
        await trio.testing.wait_all_tasks_blocked()
        assert output_quota.n_bytes < 200_000
        assert len(await FrameClient(theirs).answer()) == 51


async def test_an_error_that_is_not_read_counts_too(autojump_clock, nursery):
    output_quota = OutputQuota(MAX_UNREAD_BYTES)
    async with open_pair() as (ours, theirs):
        reply = make_reply(ours, output_quota=output_quota)
        reply.put([token("x" * 1_000_000)])
        nursery.start_soon(reply.fail, InternalError("bug 1"))
        await trio.testing.wait_all_tasks_blocked()
        assert output_quota.n_bytes > 100_000
        assert (await FrameClient(theirs).answer())[-1]["code"] == "internal"
