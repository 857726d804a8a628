import os
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from inferd.config.settings import AccessRule, AccessSettings
from inferd.limits.protocol import MAX_COMMAND_BYTES, MAX_FRAME_BYTES
from inferd.limits.server import MAX_LISTED_ID_CHARS, MAX_LISTED_REQUESTS
from tests.daemon.harness import (
    DaemonProcess,
    Listener,
    MakeDaemon,
    generate as asking,
    mock,
)
from tests.daemon.users import (
    ANNA,
    BERT,
    SHARED_GROUP,
    connect_as,
    listen_as,
    needs_root,
    open_to_all,
)
from tests.fakes.backend import FOR_EVER, Script, ScriptedBackend
from tests.fakes.serving import make_daemon, running
from tests.fakes.streams import Frame, FrameClient, generate, to_line

CHANGES = ("drain", "reload")
READS = ("requests", "metrics", "backends")


@pytest.fixture
def _we_are_no_operator(monkeypatch):
    monkeypatch.setattr("inferd.server.identity.access.ROOT", -1)
    fake = SimpleNamespace(getuid=lambda: -1)
    monkeypatch.setattr("inferd.server.identity.access.os", fake)


async def order(listener: FrameClient, **command: str) -> Frame:
    await listener.send(to_line(command))
    while (frame := await listener.frame() or {}).get("type") == "status":
        pass
    return frame


async def ask_with_long_ids(
    client: FrameClient, *, n_requests: int, n_chars: int
) -> None:
    for n in range(n_requests):
        await client.send(generate(f"{n}" + "x" * n_chars))
    await trio.testing.wait_all_tasks_blocked()


@pytest.mark.usefixtures("_we_are_no_operator")
async def test_who_is_no_operator_gets_no_status_and_no_reply_to_a_command(
    short_dir, autojump_clock
):
    server = make_daemon(short_dir, ScriptedBackend())
    async with running(server), await server.admin() as stranger:
        [refusal] = await stranger.rest()
        assert (refusal["type"], refusal["ok"]) == ("reply", False)
        async with await server.admin() as eager:
            with suppress(trio.BrokenResourceError):  # it has been turned away before
                await eager.stream.send_all(to_line({"command": "drain"}) * 5)
            assert await eager.rest() in ([refusal], [])
        assert server.infer_sock.exists()


@pytest.mark.usefixtures("_we_are_no_operator")
async def test_who_may_look_on_reads_and_changes_nothing_of_others(
    short_dir, autojump_clock
):
    access = AccessSettings(admin=AccessRule(uids=(os.getuid(),)))
    server = make_daemon(short_dir, ScriptedBackend(), access=access)
    async with running(server), await server.admin() as listener:
        for command in READS:
            assert (await order(listener, command=command))["ok"]
        for command in CHANGES:
            assert not (await order(listener, command=command))["ok"]
        assert server.infer_sock.exists()


def test_however_many_requests_with_whatever_ids_the_list_fits_a_frame():
    longest = MAX_LISTED_REQUESTS * (6 * MAX_LISTED_ID_CHARS + 1000)  # \u escapes
    assert longest < MAX_FRAME_BYTES / 8


async def test_long_ids_of_many_requests_are_listed_in_a_small_frame(
    short_dir, autojump_clock
):
    backend = ScriptedBackend(Script(token_delay_s=FOR_EVER))
    server = make_daemon(short_dir, backend)
    async with running(server), await server.admin() as operator:
        async with await server.connect() as client:
            await ask_with_long_ids(client, n_requests=20, n_chars=25_000)
            told = await order(operator, command="requests")
    assert len(told["requests"]) == 20
    assert len(str(told)) < 20 * (MAX_LISTED_ID_CHARS + 1000)


async def test_a_command_has_a_bounded_length(short_dir, autojump_clock):
    server = make_daemon(short_dir, ScriptedBackend())
    async with running(server), await server.admin() as operator:
        await operator.send(b"x" * (MAX_COMMAND_BYTES + 1))
        frames = await operator.rest()
    assert frames[-1]["ok"] is False
    assert trio.current_time() == 0


async def test_who_orders_and_does_not_read_has_few_replies_kept(
    short_dir, autojump_clock
):
    backend = ScriptedBackend(Script(token_delay_s=FOR_EVER))
    server = make_daemon(short_dir, backend)
    async with running(server), await server.admin() as operator:
        async with await server.connect() as client:
            await ask_with_long_ids(client, n_requests=60, n_chars=5_000)
            with capture_logs() as log:
                await operator.send(to_line({"command": "requests"}) * 100)
                await trio.testing.wait_all_tasks_blocked()
    n_carried_out = sum(line["event"] == "admin.command" for line in log)
    assert 0 < n_carried_out < 10


# --- two users of the machine -----------------------------------------------------------


def looked_at(listener: Listener) -> list[Frame]:
    """Ask all that may be asked; times and process ids of one's own left out."""
    replies = [listener.order(command) for command in READS]
    replies[1]["text"] = [
        line for line in replies[1]["text"].splitlines() if "_created" not in line
    ]
    return replies


def asked(daemon: DaemonProcess, uid: int, **fields: Any) -> None:
    with connect_as(daemon, uid) as connection:
        assert connection.ask(asking(**fields))[-1]["type"] == "done"


@pytest.mark.slow
@needs_root
def test_who_may_look_on_learns_nothing_of_what_others_ask(make_daemon: MakeDaemon):
    config = {"listen": {"group": SHARED_GROUP}, "access": {"admin": {"uids": [ANNA]}}}
    endless = mock(name="endless", tokens=["x"] * 10_000, token_delay_ms=10)
    daemon = open_to_all(make_daemon({**config, "backend": [endless]})).start()
    asked(daemon, ANNA, max_tokens=3)
    with listen_as(daemon.admin_sock, ANNA) as anna, daemon.admin() as operator:
        before, all_before = looked_at(anna), looked_at(operator)
        asked(daemon, BERT, max_tokens=20)
        running, waiting = (connect_as(daemon, BERT) for _ in range(2))
        for each in (running, waiting):
            each.send(asking())
        running.frame()
        assert looked_at(anna) == before
        assert looked_at(operator) != all_before
        text = before[1]["text"]
        assert 'inferd_tokens_total{backend="endless",kind="output"} 3.0' in text
        asked_again = connect_as(daemon, ANNA)
        asked_again.send(asking(id="mine", progress=True))
        asked_again.frame()
        [mine] = anna.order("requests")["requests"]
        assert (mine["id"], mine["uid"]) == ("mine", ANNA)
        others = operator.order("requests")["requests"]
        assert {each["uid"] for each in others} == {ANNA, BERT}
