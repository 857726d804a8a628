import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from inferd.config import LimitSettings
from inferd.engine.restart import Pause
from inferd.limits import WRITE_TIMEOUT_S
from tests.fakes.backend import Script, ScriptedBackend
from tests.fakes.serving import House, make_daemon, running
from tests.fakes.streams import generate

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


async def test_a_client_that_reads_no_refusal_is_dropped_in_time(autojump_clock):
    house = House(ScriptedBackend(), write_timeout_s=WRITE_TIMEOUT_S)
    async with house.opened(), house.connect() as silent:
        with capture_logs() as log, trio.fail_after(WRITE_TIMEOUT_S + 1):
            with pytest.raises(trio.BrokenResourceError):
                while True:
                    await silent.send(b'{"messages": []}\n')
    assert log[-1]["event"] == "client.gone"
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
