from contextlib import suppress
from functools import partial

import pytest
import trio
import trio.testing
from hypothesis import given, settings, strategies as st
from structlog.testing import capture_logs

from inferd.config.settings import LimitSettings
from inferd.engine.supervisor.restart_policy import RestartDelay
from inferd.errors import BackendUnavailableError
from inferd.limits.connections import MAX_UNREAD_BYTES, WRITE_TIMEOUT_S
from tests.daemon.harness import MakeDaemon, mock
from tests.fakes.backend import Script, ScriptedBackend
from tests.fakes.serving import LocalServer, make_daemon, running
from tests.fakes.streams import REQUESTS, FrameClient, cancel, generate

"""For what takes a millisecond, on a machine that does other things as well."""
MORE_THAN_A_BUFFER = "x" * 10_000_000
STALLING = Script(tokens=(MORE_THAN_A_BUFFER, "y"), token_delay_s=100)
"""A client that reads nothing of it stalls at 100 s, and it is finished at 200 s."""
VECTORS = b"[%b[0.5]]" % (b"[0.5]," * 1_000_000)
SOME_VECTORS = b"[%b[0.5]]" % (b"[0.5]," * 100_000)
"""Still more than a socket's buffers take."""


# --- while it is written ------------------------------------------------------------------


@pytest.mark.parametrize("leaf", ["infer.sock", "infer.v2.sock"])
async def test_a_client_that_does_not_read_frees_its_permit_in_time(
    leaf, autojump_clock
):
    backend = ScriptedBackend(STALLING, Script())
    server = LocalServer(backend, write_timeout_s=WRITE_TIMEOUT_S)
    async with (
        server.opened(),
        server.connect(leaf) as silent,
        server.connect() as client,
    ):
        await silent.send(REQUESTS[leaf]("silent"))
        await trio.sleep(101)
        assert server.admission.active == 1
        assert (await client.ask("next"))[-1]["type"] == "done"
        assert trio.current_time() == 100 + WRITE_TIMEOUT_S == 160
    assert backend.is_idle


async def test_one_who_does_not_read_its_place_in_the_queue_holds_up_nobody(
    autojump_clock, monkeypatch
):
    monkeypatch.setattr("inferd.wire.codec.MAX_ID_CHARS", 2_000_000)
    backend = ScriptedBackend(Script(token_delay_s=5))
    async with LocalServer(backend).opened() as server, server.connect() as client:
        silent = [server.connect(), server.connect()]
        for each in silent:
            await each.send(generate("x" * 1_000_000, progress=True))
            await trio.testing.wait_all_tasks_blocked()
        assert (await client.ask("next"))[-1]["type"] == "done"
        assert trio.current_time() == 3 * 2 * 5
        for each in silent:
            await each.aclose()


# --- once it is finished ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("leaf", "script"),
    [
        ("infer.sock", Script(tokens=(MORE_THAN_A_BUFFER,))),
        ("infer.v2.sock", Script(tokens=(MORE_THAN_A_BUFFER,))),
        ("infer.embed.sock", Script(embeddings=VECTORS)),
    ],
)
async def test_a_finished_answer_that_is_not_read_keeps_nobody_waiting(
    leaf, script, autojump_clock
):
    backend = ScriptedBackend(script, script, Script())
    server = LocalServer(backend, write_timeout_s=WRITE_TIMEOUT_S)
    async with server.opened(), server.connect() as client:
        silent = [server.connect(leaf), server.connect(leaf)]
        for each in silent:
            await each.send(REQUESTS[leaf]("silent"))
        await trio.testing.wait_all_tasks_blocked()
        assert (server.admission.active, backend.n_held, server.n_served) == (0, 0, 3)
        assert (await client.ask())[-1]["type"] == "done"
        assert trio.current_time() == 0
        await trio.sleep(WRITE_TIMEOUT_S + 1)
        assert (server.n_served, server.deps.output_quota.n_bytes) == (1, 0)
        for each in silent:
            await each.aclose()


async def test_an_answer_that_is_finished_while_its_client_stalls_frees_its_permit(
    autojump_clock,
):
    script = Script(tokens=(MORE_THAN_A_BUFFER, "y", "z"), token_delay_s=5)
    backend = ScriptedBackend(script, Script())
    async with LocalServer(backend).opened() as server, server.connect() as slow:
        await slow.send(generate("slow"))
        await trio.sleep(6)
        async with server.connect() as client:
            assert (await client.ask("next"))[-1]["type"] == "done"
        assert trio.current_time() == 15
        frames = await slow.answer()
    assert [frame["type"] for frame in frames] == ["token", "token", "token", "done"]
    assert frames[-1]["content"] == MORE_THAN_A_BUFFER + "yz"


async def test_an_engine_that_dies_while_a_client_stalls_frees_its_permit(
    autojump_clock,
):
    backend = ScriptedBackend(STALLING)
    async with LocalServer(backend).opened() as server, server.connect() as slow:
        await slow.send(generate("slow"))
        await trio.sleep(110)
        assert server.admission.active == 1
        backend.stop("it died")
        await trio.testing.wait_all_tasks_blocked()
        assert (server.admission.active, trio.current_time()) == (0, 110)
        frames = await slow.answer()
    assert [frame["type"] for frame in frames] == ["token", "error"]


async def test_finished_answers_that_are_not_read_take_so_much_memory_and_no_more(
    autojump_clock,
):
    backend = ScriptedBackend(Script(tokens=("x" * 2_000_000,)))
    server = LocalServer(
        backend, max_unread_bytes=9_000_000
    )  # two, with their done frames
    async with server.opened():
        silent = [server.connect() for _ in range(4)]
        for each in silent:
            await each.send(generate("silent"))
            await trio.testing.wait_all_tasks_blocked()
            assert server.deps.output_quota.n_bytes <= 9_000_000
        assert server.n_served == 2
        for each in silent[:2]:
            with pytest.raises(AssertionError, match="half a frame"):
                await each.rest()
        for each in silent[2:]:
            assert [frame["type"] for frame in await each.answer()] == ["token", "done"]
        for each in silent:
            await each.aclose()


def test_the_bounds_are_settings_with_these_defaults():
    limits = LimitSettings()
    assert limits.write_timeout_s == WRITE_TIMEOUT_S == 60
    assert limits.max_unread_bytes == MAX_UNREAD_BYTES == 128 * 2**20


ASKING = st.tuples(
    st.sampled_from(["infer.sock", "infer.v2.sock", "infer.embed.sock"]),
    st.builds(
        Script,
        prepare_s=st.sampled_from([0, 1]),
        tokens=st.lists(
            st.sampled_from(["y", "x" * 400_000]), min_size=1, max_size=3
        ).map(tuple),
        token_delay_s=st.sampled_from([0, 1, 5]),
        failure=st.sampled_from([None, None, BackendUnavailableError("gone")]),
        embeddings=st.just(SOME_VECTORS),
    ),
)


async def read_on(client: FrameClient):
    with suppress(trio.ClosedResourceError):
        await client.answer()


@pytest.mark.slow
@settings(max_examples=30)
@given(asking=st.lists(ASKING, max_size=6), max_active=st.integers(1, 3))
def test_those_who_do_not_read_keep_others_no_longer_than_those_who_do(
    asking, max_active
):
    async def time_of_another(*, reads: bool) -> float:
        backend = ScriptedBackend(*(script for _, script in asking), Script())
        server = LocalServer(
            backend, max_active=max_active, write_timeout_s=WRITE_TIMEOUT_S
        )
        async with server.opened(), trio.open_nursery() as nursery:
            clients = [server.connect(leaf) for leaf, _ in asking]
            for client in clients:
                await client.send(REQUESTS[client.leaf]("r"))
                await trio.testing.wait_all_tasks_blocked()
                if reads:
                    nursery.start_soon(read_on, client)
            async with server.connect() as other:
                assert (await other.ask())[-1]["type"] == "done"
            took_s = trio.current_time()
            for client in clients:
                await client.aclose()
            nursery.cancel_scope.cancel()
        return took_s

    def run(*, reads: bool) -> float:
        clock = trio.testing.MockClock(autojump_threshold=0)
        with capture_logs():
            return trio.run(partial(time_of_another, reads=reads), clock=clock)

    assert run(reads=False) == run(reads=True)


def test_readers_that_stall_stop_no_daemon_with_default_settings(
    make_daemon: MakeDaemon,
):
    daemon = make_daemon({"backend": [mock(tokens=["x" * 500] * 1000)]}).start()
    for number in range(6):
        daemon.begin(f"stalled-{number}", max_tokens=1000)
    assert daemon.ask(max_tokens=1)[-1]["type"] == "done"
    asked = daemon.admin().order("requests")["requests"]
    assert [each["id"] for each in asked] == [f"stalled-{n}" for n in range(6)]


# --- those who are not asking -------------------------------------------------------------


@pytest.mark.parametrize("leaf", ["infer.sock", "infer.v2.sock"])
async def test_one_that_was_cancelled_and_does_not_read_is_dropped_in_time(
    leaf, autojump_clock
):
    backend = ScriptedBackend(Script(tokens=(MORE_THAN_A_BUFFER,)))
    server = LocalServer(backend, write_timeout_s=WRITE_TIMEOUT_S)
    async with server.opened(), server.connect(leaf) as silent:
        await silent.send(REQUESTS[leaf]("r") + cancel("r"))
        await silent.send(REQUESTS[leaf]("r"))
        await trio.testing.wait_all_tasks_blocked()
        await silent.send(cancel("r"))
        await trio.sleep(WRITE_TIMEOUT_S + 1)
        assert server.n_served == 0
        assert server.is_empty


async def test_a_client_that_reads_no_refusal_is_dropped_in_time(autojump_clock):
    server = LocalServer(ScriptedBackend(), write_timeout_s=WRITE_TIMEOUT_S)
    async with server.opened(), server.connect() as silent:
        with capture_logs() as log, trio.fail_after(WRITE_TIMEOUT_S + 1):
            with pytest.raises(trio.BrokenResourceError):
                while True:
                    await silent.send(b'{"messages": []}\n')
    events = [line["event"] for line in log]
    sent_ahead = events[events.index("client.gone") + 1 :]
    assert set(sent_ahead) <= {"request_abandoned"}
    assert trio.current_time() == WRITE_TIMEOUT_S


async def test_a_listener_that_does_not_read_is_dropped_in_time(
    short_dir, autojump_clock
):
    server = make_daemon(short_dir, ScriptedBackend(), max_admin_connections=1)
    async with running(server), await server.admin() as silent:
        await trio.testing.wait_all_tasks_blocked()
        for n in range(200):
            reason = f"{n} " + "x" * 10_000
            server.board.died(
                "scripted", reason, RestartDelay(1.0, breaker_is_open=False)
            )
        await trio.sleep(WRITE_TIMEOUT_S + 1)
        async with await server.admin() as welcome:
            assert (await welcome.frame() or {})["type"] == "status"
        assert len(await silent.rest()) < 200


@pytest.mark.parametrize("n_clients", [1, 50])
async def test_one_who_is_turned_away_and_does_not_read_is_not_waited_for(
    n_clients, autojump_clock
):
    server = LocalServer(ScriptedBackend(), max_connections=0)
    async with server.opened():
        silent = [server.connect() for _ in range(n_clients)]
        await trio.testing.wait_all_tasks_blocked()
        assert (server.n_served, trio.current_time()) == (0, 0)
        for client in silent:
            await client.aclose()
