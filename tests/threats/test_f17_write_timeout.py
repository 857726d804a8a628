import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from inferd.config import LimitSettings
from inferd.engine.restart import Pause
from inferd.limits import WRITE_TIMEOUT_S
from tests.fakes.backend import Script, ScriptedBackend
from tests.fakes.serving import House, make_daemon, running
from tests.fakes.streams import REQUESTS, cancel, generate

MORE_THAN_A_BUFFER = "x" * 10_000_000


async def test_a_client_that_does_not_read_frees_its_permit_in_time(autojump_clock):
    backend = ScriptedBackend(Script(tokens=(MORE_THAN_A_BUFFER,)), Script())
    house = House(backend, write_timeout_s=WRITE_TIMEOUT_S)
    async with house.opened(), house.connect() as silent, house.connect() as next_one:
        await silent.send(generate("silent"))
        await trio.testing.wait_all_tasks_blocked()
        assert house.gate.active == 1
        assert (await next_one.ask("next"))[-1]["type"] == "done"
        assert trio.current_time() == WRITE_TIMEOUT_S == 60
    assert backend.is_idle


@pytest.mark.parametrize(
    ("leaf", "script"),
    [
        ("infer.v2.sock", Script(tokens=(MORE_THAN_A_BUFFER,))),
        ("infer.embed.sock", Script(embeddings=b"[%b]" % (b"[0.5]," * 1_000_000))),
    ],
)
async def test_it_does_so_on_every_socket(leaf, script, autojump_clock):
    backend = ScriptedBackend(script, Script())
    house = House(backend, write_timeout_s=WRITE_TIMEOUT_S)
    async with house.opened(), house.connect(leaf) as silent, house.connect() as client:
        await silent.send(REQUESTS[leaf]("silent"))
        await trio.testing.wait_all_tasks_blocked()
        assert house.gate.active == 1
        assert (await client.ask())[-1]["type"] == "done"
        assert trio.current_time() == WRITE_TIMEOUT_S
    assert backend.is_idle


@pytest.mark.parametrize("leaf", ["infer.sock", "infer.v2.sock"])
async def test_one_that_was_cancelled_and_does_not_read_is_dropped_in_time(
    leaf, autojump_clock
):
    backend = ScriptedBackend(Script(tokens=(MORE_THAN_A_BUFFER,)))
    house = House(backend, write_timeout_s=WRITE_TIMEOUT_S)
    async with house.opened(), house.connect(leaf) as silent:
        await silent.send(REQUESTS[leaf]("r") + cancel("r"))
        await silent.send(REQUESTS[leaf]("r"))
        await trio.testing.wait_all_tasks_blocked()
        await silent.send(cancel("r"))
        await trio.sleep(WRITE_TIMEOUT_S + 1)
        assert house.n_served == 0
        assert house.is_empty


async def test_a_client_that_reads_no_refusal_is_dropped_in_time(autojump_clock):
    house = House(ScriptedBackend(), write_timeout_s=WRITE_TIMEOUT_S)
    async with house.opened(), house.connect() as silent:
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
    house = make_daemon(short_dir, ScriptedBackend(), max_admin_connections=1)
    async with running(house), await house.admin() as silent:
        await trio.testing.wait_all_tasks_blocked()
        for n in range(200):
            reason = f"{n} " + "x" * 10_000
            house.board.died("scripted", reason, Pause(1.0, breaker_is_open=False))
        await trio.sleep(WRITE_TIMEOUT_S + 1)
        async with await house.admin() as welcome:
            assert (await welcome.frame() or {})["type"] == "status"
        assert len(await silent.rest()) < 200


def test_the_time_is_a_setting_with_this_default():
    assert LimitSettings().write_timeout_s == WRITE_TIMEOUT_S


@pytest.mark.parametrize("n_clients", [1, 50])
async def test_one_who_is_turned_away_and_does_not_read_is_not_waited_for(
    n_clients, autojump_clock
):
    house = House(ScriptedBackend(), n_places=0)
    async with house.opened():
        silent = [house.connect() for _ in range(n_clients)]
        await trio.testing.wait_all_tasks_blocked()
        assert (house.n_served, trio.current_time()) == (0, 0)
        for client in silent:
            await client.aclose()
