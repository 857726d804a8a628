import trio
import trio.testing
from structlog.testing import capture_logs

from inferd.server.room import (
    REFUSAL_S,
    Room,
    in_room,
    refuse_in_silence,
    refuse_unserved,
    refuse_with_a_frame,
)
from tests.fakes.streams import FrameClient, generate, open_pair


async def stay(_: trio.SocketStream) -> None:
    await trio.sleep_forever()


async def crash(_: trio.SocketStream) -> None:
    raise ZeroDivisionError


def test_there_is_room_for_as_many_as_may_come():
    room = Room(2)
    with room.enter() as first, room.enter() as second, room.enter() as third:
        assert (first, second, third) == (True, True, False)


def test_a_place_is_free_again_when_its_holder_left():
    room = Room(1)
    with room.enter():
        with room.enter() as refused:
            assert not refused
        with room.enter() as refused:  # the refused had no place to give back
            assert not refused
    with room.enter() as admitted:
        assert admitted


async def test_one_too_many_gets_one_frame_without_an_id(nursery, autojump_clock):
    welcome = in_room(Room(1), stay, refuse_with_a_frame)
    async with open_pair() as (first, _), open_pair() as (second, theirs):
        nursery.start_soon(welcome, first)
        await trio.testing.wait_all_tasks_blocked()
        with capture_logs() as log:
            await welcome(second)
        await second.send_eof()
        [frame] = await FrameClient(theirs).rest()
        nursery.cancel_scope.cancel()
    assert (frame["type"], frame["id"]) == ("error", "")
    assert frame["code"] == "queue_full"
    assert [line["event"] for line in log] == ["client.refused"]


async def test_one_too_many_who_left_or_asked_already_is_let_go(autojump_clock):
    welcome = in_room(Room(0), stay, refuse_with_a_frame)
    async with open_pair() as (gone, theirs):
        await theirs.aclose()
        await welcome(gone)
    async with open_pair() as (eager, theirs):
        await theirs.send_all(generate("early"))
        await welcome(eager)
        await eager.aclose()
        [frame] = await FrameClient(theirs).rest()
    assert frame["id"] == ""


async def test_one_too_many_who_does_not_read_is_let_go(autojump_clock):
    async with open_pair() as (ours, _):
        with trio.move_on_after(1):
            await ours.send_all(b"x" * 10_000_000)
        began = trio.current_time()
        await in_room(Room(0), stay, refuse_with_a_frame)(ours)
    assert trio.current_time() == began + REFUSAL_S


async def test_a_crash_is_logged_and_frees_the_place(autojump_clock):
    welcome = in_room(Room(1), crash, refuse_with_a_frame)
    async with open_pair() as (ours, _):
        for _ in range(2):
            with capture_logs() as log:
                await welcome(ours)
            [line] = log
            assert line["event"] == "client.crashed"
            assert line["exc_info"]


async def test_leaving_frees_the_place_even_when_cancelled(autojump_clock):
    room = Room(1)
    async with open_pair() as (ours, _):
        with trio.move_on_after(1):
            await in_room(room, stay, refuse_with_a_frame)(ours)
    with room.enter() as has_place:
        assert has_place


async def test_one_whom_nobody_serves_is_told_at_which_socket(autojump_clock):
    async with open_pair() as (ours, theirs):
        with capture_logs() as log:
            await in_room(Room(1), refuse_unserved("infer.embed.sock"))(ours)
        await ours.send_eof()
        [frame] = await FrameClient(theirs).rest()
    assert (frame["id"], frame["code"]) == ("", "backend_unavailable")
    assert frame["message"] == "no backend serves infer.embed.sock"
    assert [line["code"] for line in log] == ["backend_unavailable"]


async def test_one_whom_nobody_serves_may_write_before_the_pipe_is_gone(autojump_clock):
    refuse = refuse_unserved("infer.embed.sock")
    async with open_pair() as (ours, theirs), trio.open_nursery() as nursery:
        nursery.start_soon(refuse, ours)
        await theirs.receive_some()
        for _ in range(3):
            await trio.testing.wait_all_tasks_blocked()
            await theirs.send_all(b"{}\n")
        began_at = trio.current_time()
        await theirs.send_eof()
    assert trio.current_time() == began_at


async def test_one_whom_nobody_serves_is_not_waited_for_for_long(autojump_clock):
    async with open_pair() as (ours, _):
        began_at = trio.current_time()
        await refuse_unserved("infer.embed.sock")(ours)
    assert trio.current_time() - began_at == REFUSAL_S


async def test_one_listener_too_many_is_let_go_without_a_word(autojump_clock):
    welcome = in_room(Room(0), stay, refuse_in_silence)
    async with open_pair() as (ours, theirs):
        with capture_logs() as log:
            await welcome(ours)
        await ours.aclose()
        assert await FrameClient(theirs).rest() == []
    assert [line["event"] for line in log] == ["listener.refused"]


async def test_a_crash_while_refusing_is_logged_too(autojump_clock):
    async with open_pair() as (ours, _):
        with capture_logs() as log:
            await in_room(Room(0), stay, crash)(ours)
    assert [line["event"] for line in log] == ["client.crashed"]
