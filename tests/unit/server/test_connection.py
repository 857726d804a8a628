from functools import partial

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from inferd.wire.codec import decode_request
from inferd.wire.framing import LineSplitter
from tests.fakes.backend import FOR_EVER, Script, ScriptedBackend
from tests.fakes.serving import House
from tests.fakes.streams import generate, to_line

HUGE = Script(tokens=("x" * 10_000_000,))
"""An answer that no socket's buffer holds."""


async def settled():
    """Wait until every task has gone as far as it can."""
    await trio.testing.wait_all_tasks_blocked()


def nothing_left(house: House, backend: ScriptedBackend) -> bool:
    return (house.gate.active, house.gate.waiting, backend.n_held) == (0, 0, 0)


# --- requests ---------------------------------------------------------------------------


async def test_pipelined_requests_are_answered_in_order(autojump_clock):
    backend = ScriptedBackend(Script(token_delay_s=1))
    async with House(backend).opened() as house, house.connect() as client:
        await client.send(b"".join(generate(f"r{n}") for n in range(3)))
        await client.half_close()
        ids = [frame["id"] for frame in await client.rest()]
    assert ids == ["r0"] * 3 + ["r1"] * 3 + ["r2"] * 3


async def test_a_connection_holds_one_request_at_a_time(autojump_clock):
    backend = ScriptedBackend(Script(token_delay_s=FOR_EVER))
    async with House(backend).opened() as house, house.connect() as client:
        await client.send(generate("r0") + generate("r1"))
        await settled()
        assert backend.counts.asked == 1


async def test_much_that_is_sent_at_once_holds_nobody_up(autojump_clock):
    house = House(ScriptedBackend())
    async with house.opened(), house.connect() as greedy, house.connect() as other:
        with capture_logs() as log:
            await greedy.send(to_line({"id": "greedy", "messages": []}) * 100)
            await other.send(generate("other"))
            await settled()
    ids = [line["req_id"] for line in log if "req_id" in line]
    assert len(ids) == 101
    assert ids.index("other") < 100


async def test_a_request_may_come_in_single_bytes(autojump_clock):
    async with House(ScriptedBackend()).opened() as house, house.connect() as client:
        for byte in generate("r", text="é"):
            await client.send(bytes([byte]))
        assert (await client.answer())[-1]["type"] == "done"


async def test_a_last_line_without_a_newline_is_a_request(autojump_clock):
    async with House(ScriptedBackend()).opened() as house, house.connect() as client:
        await client.send(generate("r").rstrip())
        await client.half_close()
        assert (await client.rest())[-1]["type"] == "done"


async def test_a_client_that_ends_its_side_is_served_to_the_end(autojump_clock):
    backend = ScriptedBackend(Script(token_delay_s=100))
    async with House(backend).opened() as house, house.connect() as client:
        await client.send(generate("r"))
        await client.half_close()
        frames = await client.rest()
    assert [frame["type"] for frame in frames] == ["token", "token", "done"]


async def test_a_client_that_ends_its_side_and_asks_nothing_is_let_go(autojump_clock):
    async with House(ScriptedBackend()).opened() as house, house.connect() as client:
        await client.half_close()
        assert await client.rest() == []


@pytest.mark.parametrize(
    "line", [b"\n", b"{}\n", b"no JSON\n", b"\xff\xfe\n", b'{"id":1,"messages":[]}\n']
)
async def test_what_is_no_request_ends_the_connection_without_an_id(
    line, autojump_clock
):
    async with House(ScriptedBackend()).opened() as house, house.connect() as client:
        await client.send(line + generate("never"))
        [frame] = await client.rest()
    assert (frame["type"], frame["id"]) == ("error", "")
    assert frame["code"] == "invalid_request"
    assert frame["message"].startswith("decode: ")


async def test_a_request_that_means_nothing_keeps_the_connection(autojump_clock):
    async with House(ScriptedBackend()).opened() as house, house.connect() as client:
        await client.send(to_line({"id": "bad", "messages": []}) + generate("good"))
        [refusal] = await client.answer()
        assert (refusal["id"], refusal["code"]) == ("bad", "invalid_request")
        assert refusal["message"].startswith("invalid request: ")
        assert (await client.answer())[-1]["type"] == "done"


@pytest.mark.parametrize("end", [b"", b"\n"])
async def test_a_line_over_the_cap_ends_the_connection_ended_or_not(
    monkeypatch, end, autojump_clock
):
    monkeypatch.setattr(
        "inferd.server.connection.LineSplitter", partial(LineSplitter, 100)
    )
    async with House(ScriptedBackend()).opened() as house, house.connect() as client:
        await client.send(b" " * 101 + end)
        [frame] = await client.rest()
    assert (frame["id"], frame["code"]) == ("", "frame_too_large")


async def test_a_refused_line_is_logged_without_its_text(autojump_clock):
    async with House(ScriptedBackend()).opened() as house, house.connect() as client:
        with capture_logs() as log:
            await client.send(b'{"messages": "my secret"}\n')
            await client.rest()
    assert [line["code"] for line in log if line["event"] == "client.refused"]
    assert "secret" not in str(log)


# --- clients that leave -----------------------------------------------------------------


async def test_leaving_the_queue_cancels_at_once(autojump_clock):
    backend = ScriptedBackend(Script(token_delay_s=FOR_EVER))
    async with House(backend).opened() as house, house.connect() as first:
        await first.send(generate("first"))
        await settled()
        second = house.connect()
        await second.send(generate("second"))
        await settled()
        assert (house.gate.active, house.gate.waiting, backend.n_held) == (1, 1, 2)
        await second.aclose()
        await settled()
        assert (house.gate.active, house.gate.waiting, backend.n_held) == (1, 0, 1)
    assert trio.current_time() == 0


@pytest.mark.parametrize(
    "script",
    [
        Script(prepare_s=FOR_EVER),
        Script(token_delay_s=FOR_EVER),
        Script(tokens=("a",) * 1000, token_delay_s=1),
        HUGE,
    ],
)
async def test_leaving_while_prepared_run_or_written_to_cancels_at_once(
    script, autojump_clock
):
    backend = ScriptedBackend(script)
    async with House(backend).opened() as house:
        client = house.connect()
        await client.send(generate("r"))
        await settled()
        before = trio.current_time()
        assert house.gate.active == 1
        await client.aclose()
        await settled()
        assert nothing_left(house, backend)
        assert backend.counts.cancelled == 1
        assert trio.current_time() == before


async def test_unread_requests_do_not_hide_that_a_client_left(autojump_clock):
    backend = ScriptedBackend(Script(token_delay_s=FOR_EVER))
    async with House(backend).opened() as house:
        client = house.connect()
        await client.send(generate("r0") + generate("r1"))
        await settled()
        await client.send(generate("r2"))
        await client.aclose()
        await settled()
        assert nothing_left(house, backend)
        assert backend.counts.asked == 1


async def test_the_one_behind_a_client_that_left_runs(autojump_clock):
    backend = ScriptedBackend(Script(token_delay_s=FOR_EVER), Script())
    async with House(backend).opened() as house, house.connect() as second:
        first = house.connect()
        await first.send(generate("first"))
        await settled()
        await second.send(generate("second"))
        await settled()
        await first.aclose()
        assert (await second.answer())[-1]["type"] == "done"
    assert trio.current_time() == 0


async def test_a_client_that_stops_reading_is_dropped_and_frees_its_permit(
    autojump_clock,
):
    backend = ScriptedBackend(HUGE, Script())
    house = House(backend, write_timeout_s=60)
    async with house.opened(), house.connect() as silent, house.connect() as other:
        await silent.send(generate("silent"))
        await settled()
        frames = await other.ask("other")
        assert trio.current_time() == 60
        assert frames[-1]["type"] == "done"
        await settled()
        assert nothing_left(house, backend)


async def test_a_client_that_reads_slowly_keeps_its_connection(autojump_clock):
    backend = ScriptedBackend(Script(tokens=("x" * 100_000,) * 20))
    house = House(backend, write_timeout_s=60)
    async with house.opened(), house.connect() as slow:
        await slow.send(generate("slow"))
        n_frames = 0
        while (await slow.frame() or {})["type"] != "done":
            n_frames += 1
            await trio.sleep(10)
        assert n_frames == 20


# --- the daemon ends it -----------------------------------------------------------------


async def test_an_idle_connection_ends_at_once(autojump_clock):
    async with House(ScriptedBackend()).opened() as house, house.connect() as client:
        await settled()
        house.connections[0].end()
        assert await client.frame() is None


async def test_half_a_line_at_the_end_is_no_request(autojump_clock):
    async with House(ScriptedBackend()).opened() as house, house.connect() as client:
        await client.send(b'{"messages": [')
        await settled()
        house.connections[0].end()
        assert await client.rest() == []


async def test_a_request_under_way_is_answered_before_the_connection_ends(
    autojump_clock,
):
    backend = ScriptedBackend(Script(token_delay_s=10))
    async with House(backend).opened() as house, house.connect() as client:
        await client.send(generate("r") + b'{"mess')
        await settled()
        house.connections[0].end()
        frames = await client.rest()
    assert [frame["type"] for frame in frames] == ["token", "token", "done"]
    assert trio.current_time() == 20


async def test_a_connection_may_be_ended_before_it_is_served(autojump_clock):
    async with House(ScriptedBackend()).opened() as house, house.connect() as client:
        await settled()
        house.connections[0].end()
        house.connections[0].end()
        assert await client.frame() is None


# --- bugs -------------------------------------------------------------------------------


async def test_a_bug_in_one_connection_is_nobody_elses_affair(autojump_clock):
    backend = ScriptedBackend(Script(token_delay_s=10))
    house = House(backend, max_active=2)

    def decode(frame: bytes):
        if b"crash" in frame:
            raise ZeroDivisionError
        return decode_request(frame)

    house.decode = decode
    async with house.opened(), house.connect() as victim, house.connect() as other:
        await other.send(generate("other"))
        await settled()
        with capture_logs() as log:
            await victim.send(generate("crash"))
            assert await victim.rest() == []
        assert (await other.answer())[-1]["type"] == "done"
        await settled()
        assert nothing_left(house, backend)
    assert [line["event"] for line in log] == ["client.crashed"]


async def test_a_bug_while_answering_keeps_the_connection(autojump_clock):
    backend = ScriptedBackend(Script(failure=ZeroDivisionError()), Script())
    async with House(backend).opened() as house, house.connect() as client:
        with capture_logs():
            *_, error = await client.ask("first")
            assert error["code"] == "internal"
            assert (await client.ask("second"))[-1]["type"] == "done"
        await settled()
        assert nothing_left(house, backend)
