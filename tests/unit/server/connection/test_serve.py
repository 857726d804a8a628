import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from inferd.errors import InvalidRequestError
from inferd.limits.connections import (
    LIMITED_LINE_BYTES,
    READ_AHEAD_BYTES,
    READ_AHEAD_REQUESTS,
    READ_BYTES,
)
from inferd.limits.server import OFFLOAD_LINE_BYTES, READ_AHEAD_MIN
from inferd.line_decoder.messages import DecodeTask
from inferd.server.connection.response_writer import ResponseWriter
from inferd.server.connection.serve import ClientConnection
from inferd.server.identity.access import Access, Rule
from inferd.server.large_lines.decoder_pool import DecoderOutput, DecoderPool
from inferd.server.request_context import RequestContext
from inferd.wire.blocks import BlocksRequest
from inferd.wire.codec import decode_generate
from inferd.wire.framing import LineSplitter
from tests.cases import each_case
from tests.fakes.backend import FOR_EVER, Script, ScriptedBackend
from tests.fakes.fds import content_of, memfds, n_open, send_with
from tests.fakes.serving import LocalServer
from tests.fakes.streams import (
    REQUESTS,
    Frame,
    FrameClient,
    append,
    blocks,
    cancel,
    generate,
    to_line,
)

HUGE = Script(tokens=("x" * 10_000_000,))
"""An answer that no socket's buffer holds."""
STALLING = Script(tokens=(*HUGE.tokens, "x"), token_delay_s=1)
"""One that is still being made while its first second waits to be read."""


async def settled():
    """Wait until every task has gone as far as it can."""
    await trio.testing.wait_all_tasks_blocked()


def nothing_left(server: LocalServer, backend: ScriptedBackend) -> bool:
    return server.is_empty and backend.is_idle


# --- requests ---------------------------------------------------------------------------


async def test_pipelined_requests_are_answered_in_order(autojump_clock):
    backend = ScriptedBackend(Script(token_delay_s=1))
    async with LocalServer(backend).opened() as server, server.connect() as client:
        await client.send(b"".join(generate(f"r{n}") for n in range(3)))
        await client.half_close()
        ids = [frame["id"] for frame in await client.rest()]
    assert ids == ["r0"] * 3 + ["r1"] * 3 + ["r2"] * 3


async def test_a_connection_holds_one_request_at_a_time(autojump_clock):
    backend = ScriptedBackend(Script(token_delay_s=FOR_EVER))
    async with LocalServer(backend).opened() as server, server.connect() as client:
        await client.send(generate("r0") + generate("r1"))
        await settled()
        assert backend.counts.asked == 1


async def test_many_requests_at_once_do_not_block_another_connection(autojump_clock):
    server = LocalServer(ScriptedBackend())
    async with server.opened(), server.connect() as greedy, server.connect() as other:
        with capture_logs() as log:
            await greedy.send(to_line({"id": "greedy", "messages": []}) * 100)
            await other.send(generate("other"))
            await settled()
    ids = [line["req_id"] for line in log if "req_id" in line]
    assert len(ids) == 101
    assert ids.index("other") < 100


async def test_a_request_may_come_in_single_bytes(autojump_clock):
    async with (
        LocalServer(ScriptedBackend()).opened() as server,
        server.connect() as client,
    ):
        for byte in generate("r", text="é"):
            await client.send(bytes([byte]))
        assert (await client.answer())[-1]["type"] == "done"


async def test_a_last_line_without_a_newline_is_a_request(autojump_clock):
    async with (
        LocalServer(ScriptedBackend()).opened() as server,
        server.connect() as client,
    ):
        await client.send(generate("r").rstrip())
        await client.half_close()
        assert (await client.rest())[-1]["type"] == "done"


async def test_a_client_that_ends_its_side_is_served_to_the_end(autojump_clock):
    backend = ScriptedBackend(Script(token_delay_s=100))
    async with LocalServer(backend).opened() as server, server.connect() as client:
        await client.send(generate("r"))
        await client.half_close()
        frames = await client.rest()
    assert [frame["type"] for frame in frames] == ["token", "token", "done"]


async def test_a_client_that_ends_its_side_and_asks_nothing_is_let_go(autojump_clock):
    async with (
        LocalServer(ScriptedBackend()).opened() as server,
        server.connect() as client,
    ):
        await client.half_close()
        assert await client.rest() == []


@each_case(
    "line", [b"\n", b"{}\n", b"no JSON\n", b"\xff\xfe\n", b'{"id":1,"messages":[]}\n']
)
async def test_an_invalid_line_ends_the_connection_with_an_error_without_an_id(
    line, autojump_clock
):
    async with (
        LocalServer(ScriptedBackend()).opened() as server,
        server.connect() as client,
    ):
        await client.send(line + generate("never"))
        [frame] = await client.rest()
    assert (frame["type"], frame["id"]) == ("error", "")
    assert frame["code"] == "invalid_request"
    assert frame["message"].startswith("decode: ")
    counted = 'inferd_requests_total{outcome="invalid_request",socket="infer.sock"} 1.0'
    assert counted in server.metrics.text()


async def test_an_invalid_request_keeps_the_connection(autojump_clock):
    async with (
        LocalServer(ScriptedBackend()).opened() as server,
        server.connect() as client,
    ):
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
        "inferd.server.large_lines.lines.LineSplitter", partial(LineSplitter, 100)
    )
    async with (
        LocalServer(ScriptedBackend()).opened() as server,
        server.connect() as client,
    ):
        await client.send(b" " * 101 + end)
        [frame] = await client.rest()
    assert (frame["id"], frame["code"]) == ("", "frame_too_large")


async def test_a_refused_line_is_logged_without_its_text(autojump_clock):
    async with (
        LocalServer(ScriptedBackend()).opened() as server,
        server.connect() as client,
    ):
        with capture_logs() as log:
            await client.send(b'{"messages": "my secret"}\n')
            await client.rest()
    assert [line["code"] for line in log if line["event"] == "request_refused"]
    assert "secret" not in str(log)


# --- reading ahead ----------------------------------------------------------------------


async def test_requests_are_read_while_one_is_answered_up_to_a_bound(autojump_clock):
    backend = ScriptedBackend(Script(token_delay_s=FOR_EVER))
    async with LocalServer(backend).opened() as server, server.connect() as client:
        with trio.move_on_after(1) as scope:
            await client.send(generate("r") * 100_000)
        assert scope.cancelled_caught
        reader = server.connections[0]._reader
        assert len(reader._queue) == READ_AHEAD_REQUESTS
        assert reader._lines.pending_bytes < READ_AHEAD_BYTES + READ_BYTES
        assert backend.counts.asked == 1


async def test_a_long_line_is_read_to_its_end_when_it_is_next(autojump_clock, nursery):
    backend = ScriptedBackend(Script(token_delay_s=10))
    async with LocalServer(backend).opened() as server, server.connect() as client:
        long = generate("long", text="x" * 10_000_000)
        nursery.start_soon(client.send, generate("r") + long)
        await trio.sleep(1)
        reader = server.connections[0]._reader
        assert reader._lines.pending_bytes < READ_AHEAD_BYTES + READ_BYTES
        assert (await client.answer())[-1]["id"] == "r"
        assert (await client.answer())[-1]["id"] == "long"
        assert trio.current_time() == 40


async def test_as_requests_are_answered_further_ones_are_read(autojump_clock, nursery):
    backend = ScriptedBackend(Script(tokens=(), prepare_s=1))
    async with LocalServer(backend).opened() as server, server.connect() as client:
        lines = [generate(f"r{n}", text="x" * 30_000) for n in range(70)]
        nursery.start_soon(client.send, b"".join(lines))
        for n in range(30):
            await client.answer()
            await settled()
            reader = server.connections[0]._reader
            held = reader._queue.n_bytes + reader._lines.pending_bytes
            assert held >= READ_AHEAD_BYTES, n
        nursery.cancel_scope.cancel()


async def test_what_is_read_ahead_is_bounded_over_all_connections_of_a_user(
    autojump_clock, monkeypatch
):
    monkeypatch.setattr("inferd.server.connection.read_ahead.READ_AHEAD_PER_USER", 4)
    backend = ScriptedBackend(Script(tokens=(), prepare_s=1))
    async with (
        LocalServer(backend).opened() as server,
        server.connect() as first,
        server.connect() as second,
    ):
        for client in (first, second):
            await client.send(b"".join(generate(f"r{n}") for n in range(10)))
            await settled()
        readers = [each._reader for each in server.connections]
        assert sorted(len(each._queue) for each in readers) == [READ_AHEAD_MIN, 4]
        for client in (first, second):
            answers = [(await client.answer())[-1] for _ in range(10)]
            assert [each["id"] for each in answers] == [f"r{n}" for n in range(10)]
        assert server.deps.read_ahead.count(os.getuid()) == 0


async def test_what_was_sent_far_ahead_is_answered_in_order_and_in_full(
    autojump_clock, nursery
):
    backend = ScriptedBackend(Script(tokens=(), token_delay_s=1))
    lines = [generate(f"r{n}", text="x" * 30_000) for n in range(70)]
    async with LocalServer(backend).opened() as server, server.connect() as client:
        nursery.start_soon(client.send, b"".join(lines))
        ids = [(await client.answer())[-1]["id"] for _ in lines]
    assert ids == [f"r{n}" for n in range(70)]


async def test_requests_read_ahead_are_in_flight_until_they_are_answered(
    autojump_clock,
):
    backend = ScriptedBackend(Script(token_delay_s=5))
    async with LocalServer(backend).opened() as server, server.connect() as client:
        await client.send(generate("runs") + generate("behind") + b"no JSON\n")
        await settled()
        assert [each.request_id for each in server.in_flight] == ["runs", "behind"]
        await client.answer()
        assert [each.request_id for each in server.in_flight] == ["behind"]
        assert (await client.rest())[-1]["code"] == "invalid_request"
        assert server.is_empty


@each_case("leaf", REQUESTS)
async def test_what_was_read_ahead_is_cancelled_by_an_operator(leaf, autojump_clock):
    backend = ScriptedBackend(Script(token_delay_s=5))
    async with LocalServer(backend).opened() as server, server.connect(leaf) as client:
        await client.send(REQUESTS[leaf]("runs") + REQUESTS[leaf]("behind"))
        await settled()
        assert server.in_flight.cancel("behind", owner=None) == 1
        assert (await client.answer())[-1]["id"] == "runs"
        assert_cancelled(await client.frame(), leaf, "behind")
        assert backend.counts.asked == 1


async def test_requests_read_ahead_are_abandoned_when_the_client_disconnects(
    autojump_clock,
):
    backend = ScriptedBackend(Script(token_delay_s=FOR_EVER))
    async with LocalServer(backend).opened() as server:
        client = server.connect()
        await client.send(generate("r0") + generate("r1") + generate("r2"))
        await settled()
        with capture_logs() as log:
            await client.aclose()
            await settled()
        assert nothing_left(server, backend)
        assert server.deps.read_ahead.count(os.getuid()) == 0
    ids = [line["req_id"] for line in log if line["event"] == "request_abandoned"]
    assert ids == ["r0", "r1", "r2"]
    counted = 'inferd_requests_total{outcome="abandoned",socket="infer.sock"} 3.0'
    assert counted in server.metrics.text()


# --- cancels in band --------------------------------------------------------------------

HANGING = {
    "preparing": Script(prepare_s=FOR_EVER),
    "running": Script(token_delay_s=FOR_EVER),
}


def assert_cancelled(frame: Frame | None, leaf: str, request_id: str = "r"):
    """Check that this frame is the end of a cancelled request."""
    assert frame is not None
    assert frame["id"] == request_id
    if leaf in ("infer.sock", "infer.v2.sock"):
        assert (frame["type"], frame["stop_reason"]) == ("done", "cancelled")
        assert "detail" not in frame
    else:
        assert (frame["type"], frame["code"]) == ("error", "cancelled")


async def assert_served(client: FrameClient):
    """Check that the connection answers another request."""
    last = (await client.ask("next"))[-1]
    assert last["id"] == "next"
    assert last["type"] != "error"


@pytest.mark.parametrize("leaf", REQUESTS)
@pytest.mark.parametrize("phase", HANGING)
async def test_a_cancel_ends_a_request_at_once_and_the_connection_goes_on(
    leaf, phase, autojump_clock
):
    backend = ScriptedBackend(HANGING[phase], Script())
    async with LocalServer(backend).opened() as server, server.connect(leaf) as client:
        await client.send(REQUESTS[leaf]("r"))
        await settled()
        assert server.admission.active == 1
        await client.send(cancel("r"))
        [end] = await client.answer()
        assert_cancelled(end, leaf)
        assert trio.current_time() == 0
        await settled()
        assert nothing_left(server, backend)
        await assert_served(client)


@each_case("leaf", REQUESTS)
async def test_a_cancel_takes_a_request_out_of_the_queue(leaf, autojump_clock):
    backend = ScriptedBackend(HANGING["running"])
    async with LocalServer(backend).opened() as server, server.connect() as first:
        await first.send(generate("first"))
        await settled()
        async with server.connect(leaf) as second:
            await second.send(REQUESTS[leaf]("r"))
            await settled()
            assert (server.admission.active, server.admission.waiting) == (1, 1)
            await second.send(cancel("r"))
            assert_cancelled(await second.frame(), leaf)
            assert (server.admission.active, server.admission.waiting) == (1, 0)


async def test_a_cancel_in_mid_stream_tells_the_text_so_far(autojump_clock):
    backend = ScriptedBackend(Script(tokens=("a", "b", "c"), token_delay_s=1))
    async with LocalServer(backend).opened() as server, server.connect() as client:
        await client.send(generate("r"))
        assert [(await client.frame() or {})["content"] for _ in "ab"] == ["a", "b"]
        await client.send(cancel("r"))
        [done] = await client.answer()
        assert_cancelled(done, "infer.sock")
        assert done["content"] == "ab"
        assert done["usage"]["completion_tokens"] == 2
        assert (done["usage"]["prompt_tokens"], done["backend"]) == (3, "scripted")
        await assert_served(client)


@pytest.mark.parametrize("leaf", ["infer.sock", "infer.v2.sock"])
async def test_a_cancel_while_the_client_does_not_read_frees_the_permit_at_once(
    leaf, autojump_clock
):
    backend = ScriptedBackend(STALLING, Script())
    async with LocalServer(backend).opened() as server, server.connect(leaf) as client:
        await client.send(REQUESTS[leaf]("r"))
        await trio.sleep(1.5)
        assert server.admission.active == 1
        await client.send(cancel("r"))
        await settled()
        assert server.admission.active == 0
        assert backend.is_idle
        assert trio.current_time() == 1.5
        piece, end = await client.answer()
        assert len(str(piece)) > len(HUGE.tokens[0])
        assert_cancelled(end, leaf)
        await assert_served(client)


@pytest.mark.parametrize("n_read", [0, 1, 100_000])
async def test_a_cancel_in_a_half_written_frame_leaves_whole_lines(
    n_read, autojump_clock
):
    tokens = ("x" * 300_000, "y" * 300_000, "z" * 300_000)
    backend = ScriptedBackend(Script(tokens=tokens, token_delay_s=1), Script())
    async with LocalServer(backend).opened() as server, server.connect() as client:
        await client.send(generate("r"))
        await trio.sleep(1.5)
        await client.read_bytes(n_read)
        await client.send(cancel("r") + generate("next"))
        *pieces, end = await client.answer()
        assert_cancelled(end, "infer.sock")
        text = "".join(piece["content"] for piece in pieces)
        assert end["content"] == text == "".join(tokens)[: len(text)]
        assert (await client.answer())[-1]["id"] == "next"


@pytest.mark.parametrize("leaf", ["infer.sock", "infer.v2.sock", "infer.embed.sock"])
async def test_a_cancel_as_the_last_frame_is_being_written_is_too_late(
    leaf, autojump_clock
):
    huge = Script(tokens=HUGE.tokens, embeddings=b"[[%b0]]" % (b"0," * 1_000_000))
    backend = ScriptedBackend(huge, Script())
    async with LocalServer(backend).opened() as server, server.connect(leaf) as client:
        await client.send(REQUESTS[leaf]("r", stream=False))
        await settled()
        await client.send(cancel("r"))
        await settled()
        frames = await client.answer()
        assert len(str(frames)) > 1_000_000
        assert frames[-1]["type"] != "error"
        assert frames[-1].get("stop_reason") != "cancelled"
        await assert_served(client)


async def test_a_cancel_of_one_that_waits_on_the_connection_spares_the_current_one(
    autojump_clock,
):
    backend = ScriptedBackend(Script(token_delay_s=5))
    async with LocalServer(backend).opened() as server, server.connect() as client:
        await client.send(generate("r0") + generate("r1") + generate("r2"))
        await settled()
        await client.send(cancel("r1"))
        assert (await client.answer())[-1]["stop_reason"] == "end"
        assert_cancelled(await client.frame(), "infer.sock", "r1")
        assert trio.current_time() == 10
        assert (await client.answer())[-1]["stop_reason"] == "end"
        assert backend.counts.started == 2


async def test_a_cancel_behind_its_request_in_one_write_ends_it(autojump_clock):
    backend = ScriptedBackend(Script(token_delay_s=FOR_EVER))
    async with LocalServer(backend).opened() as server, server.connect() as client:
        await client.send(generate("r") + cancel("r") + generate("r") + cancel("r"))
        for _ in range(2):
            assert_cancelled(await client.frame(), "infer.sock")
        await settled()
        assert nothing_left(server, backend)


@pytest.mark.parametrize("leaf", ["infer.sock", "infer.embed.sock"])
async def test_a_request_cancelled_before_its_turn_needs_no_queue_position(
    leaf, autojump_clock
):
    backend = ScriptedBackend(Script(token_delay_s=FOR_EVER))
    server = LocalServer(backend, max_queued=0)
    async with (
        server.opened(),
        server.connect() as first,
        server.connect(leaf) as second,
    ):
        await first.send(generate("runs"))
        await settled()
        await second.send(REQUESTS[leaf]("r") + cancel("r"))
        assert_cancelled(await second.frame(), leaf)


async def test_a_cancel_of_an_unknown_id_is_answered_by_nothing(autojump_clock):
    async with (
        LocalServer(ScriptedBackend()).opened() as server,
        server.connect() as client,
    ):
        await client.send(cancel("r") + generate("r") + cancel("other"))
        assert (await client.answer())[-1]["stop_reason"] == "end"
        await client.send(cancel("r"))
        await client.half_close()
        assert await client.rest() == []


async def test_a_cancel_reaches_no_other_connection(autojump_clock):
    backend = ScriptedBackend(Script(token_delay_s=10))
    server = LocalServer(backend, max_active=2)
    async with server.opened(), server.connect() as mine, server.connect() as theirs:
        await mine.send(generate("r"))
        await theirs.send(generate("r"))
        await settled()
        await mine.send(cancel("r"))
        assert_cancelled(await mine.frame(), "infer.sock")
        assert (await theirs.answer())[-1]["stop_reason"] == "end"


async def test_a_cancel_that_is_none_ends_the_connection_after_the_current_one(
    autojump_clock,
):
    backend = ScriptedBackend(Script(token_delay_s=1))
    async with LocalServer(backend).opened() as server, server.connect() as client:
        await client.send(generate("r") + b'{"type":"cancel"}\n' + generate("never"))
        *_, done, refusal = await client.rest()
    assert (done["id"], done["stop_reason"]) == ("r", "end")
    assert (refusal["id"], refusal["code"]) == ("", "invalid_request")
    assert refusal["message"].startswith("decode: ")


async def test_a_half_closed_client_s_cancel_is_heard(autojump_clock):
    backend = ScriptedBackend(Script(token_delay_s=FOR_EVER))
    async with LocalServer(backend).opened() as server, server.connect() as client:
        await client.send(generate("r"))
        await settled()
        await client.send(cancel("r").rstrip())
        await client.half_close()
        [end] = await client.rest()
        assert_cancelled(end, "infer.sock")


async def test_leaving_after_a_cancel_that_cannot_be_told_frees_the_connection(
    autojump_clock,
):
    backend = ScriptedBackend(HUGE)
    async with LocalServer(backend).opened() as server:
        client = server.connect()
        await client.send(generate("r"))
        await settled()
        await client.send(cancel("r"))
        await settled()
        assert server.n_served == 1
        await client.aclose()
        await settled()
        assert server.n_served == 0
        assert nothing_left(server, backend)


async def test_a_cancel_is_one_line_of_the_log_with_its_outcome(autojump_clock):
    backend = ScriptedBackend(Script(token_delay_s=FOR_EVER))
    async with LocalServer(backend).opened() as server:
        for leaf in ("infer.v2.sock", "infer.rerank.sock"):
            with capture_logs() as log:
                async with server.connect(leaf) as client:
                    await client.send(REQUESTS[leaf]("r"))
                    await settled()
                    await client.send(cancel("r"))
                    await client.answer()
            [line] = [each for each in log if "req_id" in each]
            assert "cancelled" in (line.get("stop_reason"), line.get("code"))


# --- clients that leave -----------------------------------------------------------------


async def test_leaving_the_queue_cancels_at_once(autojump_clock):
    backend = ScriptedBackend(Script(token_delay_s=FOR_EVER))
    async with LocalServer(backend).opened() as server, server.connect() as first:
        await first.send(generate("first"))
        await settled()
        second = server.connect()
        await second.send(generate("second"))
        await settled()
        assert (server.admission.active, server.admission.waiting, backend.n_held) == (
            1,
            1,
            2,
        )
        await second.aclose()
        await settled()
        assert (server.admission.active, server.admission.waiting, backend.n_held) == (
            1,
            0,
            1,
        )
    assert trio.current_time() == 0


@pytest.mark.parametrize(
    "script",
    [
        Script(prepare_s=FOR_EVER),
        Script(token_delay_s=FOR_EVER),
        Script(tokens=("a",) * 1000, token_delay_s=1),
        STALLING,
    ],
)
async def test_leaving_while_prepared_run_or_written_to_cancels_at_once(
    script, autojump_clock
):
    backend = ScriptedBackend(script)
    async with LocalServer(backend).opened() as server:
        client = server.connect()
        await client.send(generate("r"))
        await trio.sleep(1.5)
        before = trio.current_time()
        assert server.admission.active == 1
        await client.aclose()
        await settled()
        assert nothing_left(server, backend)
        assert backend.counts.cancelled == 1
        assert trio.current_time() == before


async def test_unread_requests_do_not_hide_that_a_client_left(autojump_clock):
    backend = ScriptedBackend(Script(token_delay_s=FOR_EVER))
    async with LocalServer(backend).opened() as server:
        client = server.connect()
        await client.send(generate("r0") + generate("r1"))
        await settled()
        await client.send(generate("r2"))
        await client.aclose()
        await settled()
        assert nothing_left(server, backend)
        assert backend.counts.asked == 1


async def test_the_one_behind_a_client_that_left_runs(autojump_clock):
    backend = ScriptedBackend(Script(token_delay_s=FOR_EVER), Script())
    async with LocalServer(backend).opened() as server, server.connect() as second:
        first = server.connect()
        await first.send(generate("first"))
        await settled()
        await second.send(generate("second"))
        await settled()
        await first.aclose()
        assert (await second.answer())[-1]["type"] == "done"
    assert trio.current_time() == 0


async def test_leaving_a_finished_answer_leaves_nothing(autojump_clock):
    backend = ScriptedBackend(HUGE)
    async with LocalServer(backend).opened() as server:
        client = server.connect()
        await client.send(generate("r"))
        await settled()
        assert server.deps.output_quota.n_bytes > 10_000_000
        await client.aclose()
        await settled()
        assert nothing_left(server, backend)
        assert trio.current_time() == server.deps.output_quota.n_bytes == 0


async def test_a_client_that_stops_reading_is_dropped_in_time(autojump_clock):
    backend = ScriptedBackend(HUGE, Script())
    server = LocalServer(backend, write_timeout_s=60)
    async with server.opened(), server.connect() as silent:
        await silent.send(generate("silent"))
        await trio.sleep(59)
        assert server.n_served == 1
        await trio.sleep(2)
        assert server.n_served == 0
        assert nothing_left(server, backend)


async def test_a_client_that_reads_slowly_keeps_its_connection(autojump_clock):
    backend = ScriptedBackend(Script(tokens=("x" * 100_000,) * 20))
    server = LocalServer(backend, write_timeout_s=60)
    async with server.opened(), server.connect() as slow:
        await slow.send(generate("slow"))
        n_frames = 0
        while (await slow.frame() or {})["type"] != "done":
            n_frames += 1
            await trio.sleep(2)
        assert n_frames == 20


# --- closed by the daemon ---------------------------------------------------------------


async def test_an_idle_connection_ends_at_once(autojump_clock):
    async with (
        LocalServer(ScriptedBackend()).opened() as server,
        server.connect() as client,
    ):
        await settled()
        server.connections[0].close_when_idle()
        assert await client.frame() is None


async def test_half_a_line_at_the_end_is_no_request(autojump_clock):
    async with (
        LocalServer(ScriptedBackend()).opened() as server,
        server.connect() as client,
    ):
        await client.send(b'{"messages": [')
        await settled()
        server.connections[0].close_when_idle()
        assert await client.rest() == []


async def test_a_request_under_way_is_answered_before_the_connection_ends(
    autojump_clock,
):
    backend = ScriptedBackend(Script(token_delay_s=10))
    async with LocalServer(backend).opened() as server, server.connect() as client:
        await client.send(generate("r") + b'{"mess')
        await settled()
        server.connections[0].close_when_idle()
        frames = await client.rest()
    assert [frame["type"] for frame in frames] == ["token", "token", "done"]
    assert trio.current_time() == 20


async def test_what_is_asked_while_another_is_answered_at_the_end_is_refused(
    autojump_clock,
):
    backend = ScriptedBackend(Script(token_delay_s=10))
    async with LocalServer(backend).opened() as server, server.connect() as client:
        await client.send(generate("runs"))
        await settled()
        server.queue.close()
        server.connections[0].close_when_idle()
        await trio.sleep(1)
        await client.send(generate("late0") + generate("late1") + b'{"mess')
        ids = [(frame["id"], frame["type"]) for frame in await client.rest()]
    assert ids[2:] == [("runs", "done"), ("late0", "error"), ("late1", "error")]


@each_case("is_closed", [True, False])
@each_case("end", [b"", b"\n"])
async def test_what_was_sent_as_an_idle_connection_ends_is_answered(
    end, is_closed, autojump_clock
):
    server = LocalServer(ScriptedBackend())
    async with server.opened(), server.connect() as client:
        await settled()
        if is_closed:
            server.queue.close()
        await client.send(generate("r0") + generate("r1").rstrip() + end)
        server.connections[0].close_when_idle()
        frames = await client.rest()
    end_type = "error" if is_closed else "done"
    ends = [frame["id"] for frame in frames if frame["type"] == end_type]
    assert ends == ["r0", "r1"]


async def test_a_client_that_is_refused_at_the_end_cannot_send_for_ever(
    autojump_clock,
):
    async with (
        LocalServer(ScriptedBackend()).opened() as server,
        server.connect() as client,
    ):
        await settled()
        server.queue.close()
        server.connections[0].close_when_idle()
        n_sent = 0
        with pytest.raises(trio.BrokenResourceError):
            while True:
                await client.send(generate(f"r{n_sent}"))
                n_sent += 1
                await settled()
        assert len(await client.rest()) == n_sent


async def test_a_large_line_that_waits_for_its_turn_does_not_hold_up_the_end(
    autojump_clock,
):
    server = LocalServer(ScriptedBackend(), max_large_lines=1)
    async with server.opened(), server.connect() as reading:
        await reading.send(LARGE[: LIMITED_LINE_BYTES + 1])
        await settled()
        async with server.connect() as waiting:
            await waiting.send(LARGE[: LIMITED_LINE_BYTES + 1])
            await settled()
            server.connections[1].close_when_idle()
            assert await waiting.rest() == []
        assert trio.current_time() == 0


async def test_a_connection_may_be_ended_before_it_is_served(autojump_clock):
    async with (
        LocalServer(ScriptedBackend()).opened() as server,
        server.connect() as client,
    ):
        await settled()
        server.connections[0].close_when_idle()
        server.connections[0].close_when_idle()
        assert await client.frame() is None


# --- timeouts ---------------------------------------------------------------------------


async def test_a_line_that_dribbles_in_has_its_time_and_ends_the_connection(
    autojump_clock,
):
    server = LocalServer(ScriptedBackend(), line_timeout_s=60)
    async with server.opened(), server.connect() as client:
        for _ in range(60):
            await client.send(b" ")
            await trio.sleep(1)
        [frame] = await client.rest()
    assert (frame["id"], frame["code"]) == ("", "invalid_request")
    assert frame["message"] == "decode: no line ended within 60 s"
    assert trio.current_time() == 60


async def test_each_line_has_a_time_of_its_own(autojump_clock):
    server = LocalServer(ScriptedBackend(), line_timeout_s=60)
    async with server.opened(), server.connect() as client:
        for n in range(5):
            line = generate(f"r{n}")
            await client.send(line[:10])
            await trio.sleep(50)
            await client.send(line[10:] + cancel("nobody")[:-1])
            assert (await client.answer())[-1]["type"] == "done"
            await trio.sleep(50)
            await client.send(b"\n")
    assert trio.current_time() == 500


@pytest.mark.parametrize("ahead", [b"", b'{"mess'])
async def test_a_client_that_waits_for_an_answer_may_send_nothing(
    ahead, autojump_clock
):
    backend = ScriptedBackend(Script(token_delay_s=1000))
    server = LocalServer(backend, max_connections=1, line_timeout_s=60, idle_s=60)
    async with server.opened(), server.connect() as client:
        await client.send(generate("r") + ahead)
        assert (await client.answer())[-1]["type"] == "done"
        assert trio.current_time() == 2000
        await trio.sleep(59)
        assert server.n_served == 1


async def test_an_idle_connection_stays_while_connections_are_not_scarce(
    autojump_clock,
):
    server = LocalServer(ScriptedBackend(), max_connections=2, idle_s=60)
    async with server.opened(), server.connect() as client:
        await trio.sleep(3000)
        assert (await client.ask())[-1]["type"] == "done"


async def test_an_idle_connection_is_closed_when_connections_are_scarce(autojump_clock):
    server = LocalServer(ScriptedBackend(), max_connections=2, idle_s=60)
    async with server.opened(), server.connect() as idle:
        await trio.sleep(70)
        async with server.connect() as second:
            assert await idle.rest() == []
            assert trio.current_time() <= 70 + 60 / 4
            assert (await second.ask())[-1]["type"] == "done"
            await trio.sleep(100)
            assert server.n_served == 1


async def test_what_is_asked_as_its_client_idled_too_long_is_answered(
    monkeypatch, autojump_clock
):
    server = LocalServer(ScriptedBackend(), max_connections=1, idle_s=60)
    async with server.opened(), server.connect() as client:
        usual = server.deps.connection_limit.must_close_idle

        def needs_places_of(uid: int) -> bool:
            os.write(client.stream.socket.fileno(), generate("r"))
            return usual(uid)

        monkeypatch.setattr(
            server.deps.connection_limit, "must_close_idle", needs_places_of
        )
        frames = await client.rest()
        assert trio.current_time() == 60
    assert [frame["type"] for frame in frames] == ["token", "token", "done"]


async def test_a_user_who_may_no_longer_come_in_gets_its_answer_and_the_end(
    monkeypatch, autojump_clock
):
    monkeypatch.setattr("inferd.server.identity.access.is_operator", lambda _: False)
    server = LocalServer(ScriptedBackend(Script(token_delay_s=5)))
    async with server.opened(), server.connect() as client:
        await client.send(generate("r"))
        await settled()
        server.connections[0].recheck_access(Access({"infer.v2.sock": Rule()}))
        await settled()
        assert server.n_served == 1
        server.connections[0].recheck_access(Access({"infer.sock": Rule()}))
        await client.send(generate("late"))
        *answer, late = await client.rest()
        assert [each["id"] for each in answer] == ["r", "r", "r"]
        assert (late["id"], late["code"]) == ("late", "permission_denied")


async def test_a_user_who_may_no_longer_come_in_can_cancel_what_runs(
    monkeypatch, autojump_clock
):
    monkeypatch.setattr("inferd.server.identity.access.is_operator", lambda _: False)
    server = LocalServer(ScriptedBackend(Script(token_delay_s=FOR_EVER)))
    async with server.opened(), server.connect() as client:
        await client.send(generate("r") + generate("ahead"))
        await settled()
        server.connections[0].recheck_access(Access({"infer.sock": Rule()}))
        await client.send(cancel("r") + cancel("ahead"))
        for request_id in ("r", "ahead"):
            assert_cancelled(await client.frame(), "infer.sock", request_id)
        assert await client.rest() == []


# --- large lines ------------------------------------------------------------------------

LARGE = generate("large", "x" * (2 * LIMITED_LINE_BYTES))


def begun(connection: ClientConnection[Any]) -> int:
    """Count the bytes of a connection's unfinished line."""
    return connection._reader._lines.pending_bytes


async def test_large_lines_are_read_one_after_the_other(autojump_clock):
    server = LocalServer(ScriptedBackend(), max_large_lines=1)
    async with server.opened(), server.connect() as first, server.connect() as second:
        await first.send(LARGE[:-1])
        await settled()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(second.send, LARGE * 5)
            await settled()
            held_up, read = sorted(begun(each) for each in server.connections)
            assert LIMITED_LINE_BYTES <= held_up < LIMITED_LINE_BYTES + READ_BYTES
            assert read == len(LARGE) - 1
            await first.send(b"\n")
            assert (await first.answer())[-1]["type"] == "done"
            for _ in range(5):
                assert (await second.answer())[-1]["type"] == "done"


async def test_the_time_for_a_line_does_not_pass_while_it_waits_for_its_turn(
    autojump_clock,
):
    server = LocalServer(ScriptedBackend(), max_large_lines=1, line_timeout_s=60)
    async with server.opened(), server.connect() as slow, server.connect() as client:
        await slow.send(LARGE[:-1])
        await trio.sleep(30)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.send, LARGE)
            [refusal] = await slow.rest()
            assert (refusal["code"], trio.current_time()) == ("invalid_request", 60)
            assert (await client.answer())[-1]["type"] == "done"
    assert server.deps.line_limiter.n_active == 0


async def test_a_line_that_waits_for_its_turn_longer_than_it_has_time_is_answered(
    autojump_clock,
):
    server = LocalServer(ScriptedBackend(), max_large_lines=1, line_timeout_s=60)
    async with server.opened(), server.connect() as one, server.connect() as other:
        for slow in (one, other):
            await slow.send(LARGE[:-1])
            await settled()
        async with server.connect() as client, trio.open_nursery() as nursery:
            await client.send(LARGE[:1])
            await settled()  # its time begins before it has to wait
            nursery.start_soon(client.send, LARGE[1:])
            for slow in (one, other):
                [refusal] = await slow.rest()
                assert refusal["code"] == "invalid_request"
            assert trio.current_time() == 120
            assert (await client.answer())[-1]["type"] == "done"


async def test_small_lines_overtake_large_ones_that_wait(autojump_clock):
    server = LocalServer(ScriptedBackend(), max_large_lines=1)
    async with server.opened(), server.connect() as large, server.connect() as small:
        await large.send(LARGE[:-1])
        await settled()
        assert (await small.ask())[-1]["type"] == "done"
        assert trio.current_time() == 0


async def test_a_client_that_disconnects_within_a_large_line_returns_its_permit(
    autojump_clock,
):
    server = LocalServer(ScriptedBackend(), max_large_lines=1)
    async with server.opened():
        for _ in range(3):
            async with server.connect() as client:
                await client.send(LARGE[:-1])
                await settled()
                assert server.deps.line_limiter.n_active == 1
        await settled()
        assert server.deps.line_limiter.n_active == 0


class Blocked(DecoderPool):
    """Decodes nothing: every line waits."""

    def __init__(self) -> None:
        super().__init__()
        self.offload_line_bytes = OFFLOAD_LINE_BYTES
        self.n_waiting = 0

    async def read(
        self, ask: DecodeTask, parts: Sequence[bytes | bytearray], *, user: int
    ) -> DecoderOutput:
        del ask, parts, user
        self.n_waiting += 1
        await trio.sleep_forever()
        raise AssertionError


async def test_a_large_line_keeps_its_permit_until_it_is_decoded(autojump_clock):
    server = LocalServer(ScriptedBackend(), max_large_lines=2)
    decoders = server.deps.decoders = Blocked()
    async with server.opened():
        clients = [server.connect() for _ in range(5)]
        async with trio.open_nursery() as sending:
            for client in clients:
                sending.start_soon(client.send, LARGE)
            await settled()
            assert (decoders.n_waiting, server.deps.line_limiter.n_active) == (
                1,
                1,
            )
            sending.cancel_scope.cancel()
        for client in clients:
            await client.aclose()
        await settled()
        assert server.deps.line_limiter.n_active == 0
    assert server.is_empty


# --- bugs -------------------------------------------------------------------------------


async def test_a_bug_in_one_connection_does_not_affect_others(autojump_clock):
    backend = ScriptedBackend(Script(token_delay_s=10))
    server = LocalServer(backend, max_active=2)

    def decode(frame: bytes):
        if b"crash" in frame:
            raise ZeroDivisionError
        return decode_generate(frame)

    usual = server.endpoints["infer.sock"]
    server.endpoints["infer.sock"] = replace(usual, decode=decode)
    async with server.opened(), server.connect() as victim, server.connect() as other:
        await other.send(generate("other"))
        await settled()
        with capture_logs() as log:
            await victim.send(generate("crash"))
            assert await victim.rest() == []
        assert (await other.answer())[-1]["type"] == "done"
        await settled()
        assert nothing_left(server, backend)
    assert [line["event"] for line in log] == ["client.crashed"]


async def test_a_bug_while_answering_keeps_the_connection(autojump_clock):
    backend = ScriptedBackend(Script(failure=ZeroDivisionError()), Script())
    async with LocalServer(backend).opened() as server, server.connect() as client:
        with capture_logs():
            *_, error = await client.ask("first")
            assert error["code"] == "internal"
            assert (await client.ask("second"))[-1]["type"] == "done"
        await settled()
        assert nothing_left(server, backend)


async def test_a_bug_as_a_cancelled_run_is_left_leaves_whole_lines(autojump_clock):
    buggy = Script(tokens=HUGE.tokens, failure_at_exit=ZeroDivisionError())
    async with LocalServer(ScriptedBackend(buggy, Script())).opened() as server:
        async with server.connect() as client:
            with capture_logs():
                await client.send(generate("r", stream=False))
                await settled()
                await client.send(cancel("r") + generate("next"))
                await settled()
                [done] = await client.answer()
            assert (done["id"], done["stop_reason"]) == ("r", "end")
            assert (await client.answer())[-1]["id"] == "next"


# --- descriptors and appends ------------------------------------------------------------

SOUND = {"kind": "audio", "id": "s", "sample_rate": 16000, "open": True}
OPEN = blocks(attachments=[SOUND])
V2 = "infer.v2.sock"


class Listener:
    """Reads a request's appends to the end, and refuses it."""

    def __init__(self) -> None:
        self.heard: list[bytes | str] = []
        self.may_listen = trio.Event()
        self.may_listen.set()

    async def answer(
        self, request: BlocksRequest, reply: ResponseWriter, context: RequestContext
    ):
        with context.scope:
            self.heard += [content_of(fd) for fd in context.fds]
            await self.may_listen.wait()
            async for line, fds in context.appends:
                self.heard += [content_of(fd) for fd in fds] or [line.bytes or "end"]
        raise context.failure or InvalidRequestError("heard")


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[LocalServer, Listener]]:
    """Serve v2 with a service; check that no descriptor is left open."""
    n_before = n_open()
    server, listener = LocalServer(ScriptedBackend()), Listener()
    server.endpoints[V2] = replace(server.endpoints[V2], service=listener)
    async with server.opened():
        n_opened = n_open()
        yield server, listener
        await settled()
        assert n_open() == n_opened
    assert server.is_empty
    assert server.deps.fd_quota.n_held == 0
    assert n_open() <= n_before + 1


async def test_descriptors_come_with_the_line_they_were_sent_with(autojump_clock):
    async with listening() as (server, listener), server.connect(V2) as client:
        with memfds(b"one", b"two") as fds:
            await send_with(client.stream, blocks("a"), fds)
        await client.send(blocks("b"))
        with memfds(b"three") as fds:
            await send_with(client.stream, blocks("c"), fds)
        for _ in "abc":
            await client.answer()
    assert listener.heard == [b"one", b"two", b"three"]


async def test_what_is_appended_is_heard_while_the_request_runs(autojump_clock):
    async with listening() as (server, listener), server.connect(V2) as client:
        await client.send(OPEN + append(bytes="AAAA"))
        await settled()
        assert listener.heard == ["AAAA"]
        with memfds(b"by descriptor") as fds:
            await send_with(client.stream, append(fd=0), fds)
        await client.send(append(end=True))
        [frame] = await client.answer()
        assert frame["message"] == "invalid request: heard"
    assert listener.heard == ["AAAA", b"by descriptor", "end"]


async def test_a_client_that_ends_its_side_has_no_more_to_append(autojump_clock):
    async with listening() as (server, listener), server.connect(V2) as client:
        await client.send(OPEN + append(bytes="AAAA"))
        await client.half_close()
        assert len(await client.rest()) == 1
    assert listener.heard == ["AAAA"]


async def test_what_is_not_taken_keeps_the_client_from_sending_and_is_not_lost(
    autojump_clock, nursery
):
    line = append(bytes="A" * 100_000)
    async with listening() as (server, listener), server.connect(V2) as client:
        listener.may_listen = trio.Event()
        await client.send(OPEN)
        nursery.start_soon(client.send, line * 100 + append(end=True))
        await trio.sleep(1)
        [connection] = server.connections
        current = connection._reader._current
        assert current is not None
        assert current.appends.pending_bytes < READ_AHEAD_BYTES + READ_BYTES + len(line)
        listener.may_listen.set()
        await client.answer()
    assert len(listener.heard) == 101


async def test_an_open_request_to_which_nothing_is_appended_ends(autojump_clock):
    async with listening() as (server, _), server.connect(V2) as client:
        await client.send(OPEN)
        [frame] = await client.answer()
        assert frame["message"] == "invalid request: nothing was appended in 60 s"
        assert trio.current_time() == 60


async def test_passed_descriptors_are_closed_when_the_client_disconnects(
    autojump_clock,
):
    async with listening() as (server, listener):
        listener.may_listen = trio.Event()
        client = server.connect(V2)
        with memfds(b"one") as fds:
            for line in (OPEN, append(fd=0), blocks("b"), append(fd=0), b"{"):
                await send_with(client.stream, line, fds)
                await settled()
        assert server.deps.fd_quota.n_held == 5
        await client.aclose()


async def test_too_many_descriptors_are_refused_and_the_connection_goes_on(
    autojump_clock,
):
    async with listening() as (server, listener), server.connect(V2) as client:
        with memfds(*[b""] * 33) as fds:
            await send_with(client.stream, blocks("a"), fds)
        [frame] = await client.answer()
        assert (frame["id"], frame["code"]) == ("a", "invalid_request")
        server.deps.fd_quota.max_fds = 1
        with memfds(b"one") as fds:
            await send_with(client.stream, blocks("b"), fds)
        [frame] = await client.answer()
        assert (frame["id"], frame["code"]) == ("b", "queue_full")
    assert listener.heard == []


@pytest.mark.parametrize("leaf", sorted(REQUESTS.keys() - {V2}))
async def test_where_no_media_come_descriptors_are_dropped(leaf, autojump_clock):
    async with (
        LocalServer(ScriptedBackend()).opened() as server,
        server.connect(leaf) as client,
    ):
        n_before = n_open()
        with memfds(b"one") as fds:
            await send_with(client.stream, REQUESTS[leaf]("r"), fds)
        assert (await client.answer())[-1]["type"] != "error"
        assert n_open() == n_before


async def test_an_append_that_cannot_be_used_ends_an_answer_under_way(autojump_clock):
    backend = ScriptedBackend(Script(token_delay_s=FOR_EVER))
    async with LocalServer(backend).opened() as server, server.connect(V2) as client:
        await client.send(blocks("a"))
        await settled()
        await client.send(append("a", bytes="AAAA"))
        [frame] = await client.answer()
        assert (frame["id"], frame["code"]) == ("a", "invalid_request")
        assert frame["message"] == (
            'invalid request: append to attachment "s", which is not open'
        )
        assert nothing_left(server, backend)
        await client.send(append("a", bytes="AAAA") + to_line({"messages": []}))
        [frame] = await client.answer()
        assert frame["message"] == "invalid request: messages must not be empty"


async def test_a_connection_that_is_cancelled_closes_what_its_half_line_brought(
    autojump_clock,
):
    server = LocalServer(ScriptedBackend())
    async with server.opened():
        client = server.connect(V2)
        with memfds(b"one") as fds:
            await send_with(client.stream, b"{", fds)
        await settled()
        assert server.deps.fd_quota.n_held == 1
        server._nursery.cancel_scope.cancel()
    assert server.deps.fd_quota.n_held == 0
    await client.aclose()


async def test_leaving_before_the_turn_to_be_answered_leaves_nothing(autojump_clock):
    backend = ScriptedBackend()
    async with LocalServer(backend).opened() as server:
        client = server.connect()
        await settled()
        turns = iter([0])  # for reading, and none for answering

        async def turn() -> None:
            await trio.sleep(next(turns, FOR_EVER))

        server.deps.loop.turn = turn  # type: ignore[method-assign]
        await client.send(generate("r"))
        await settled()
        assert [each.request_id for each in server.in_flight] == ["r"]
        await client.aclose()
        await settled()
        assert nothing_left(server, backend)
        assert backend.counts.asked == 0
