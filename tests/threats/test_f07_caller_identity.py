import os

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from inferd.errors import InvalidRequestError
from inferd.server.identity.access import Access, Rule
from inferd.server.request_context import event_name
from tests.fakes.backend import FOR_EVER, Script, ScriptedBackend
from tests.fakes.serving import LocalServer
from tests.fakes.streams import BY_SOCKET, REQUESTS


@pytest.mark.parametrize("leaf", REQUESTS)
@pytest.mark.parametrize(
    ("script", "event"),
    [
        (Script(), "request_done"),
        (Script(refusal=InvalidRequestError("no")), "request_refused"),
        (Script(failure=ZeroDivisionError()), "request_error_mid_stream"),
        (Script(token_delay_s=FOR_EVER), "request_abandoned"),
    ],
)
async def test_whatever_comes_of_a_request_its_line_says_who_sent_it(
    leaf, script, event, autojump_clock
):
    with capture_logs() as log:
        async with LocalServer(ScriptedBackend(script)).opened() as server:
            async with server.connect(leaf) as client:
                await client.send(REQUESTS[leaf]("r"))
                await trio.testing.wait_all_tasks_blocked()
            await trio.testing.wait_all_tasks_blocked()
    [line] = [
        each for each in log if each["event"] == event_name(BY_SOCKET[leaf], event)
    ]
    assert (line["peer_uid"], line["peer_pid"]) == (os.getuid(), os.getpid())


async def test_a_line_that_is_no_request_is_logged_with_its_sender(autojump_clock):
    with capture_logs() as log:
        async with LocalServer(ScriptedBackend()).opened() as server:
            async with server.connect() as client:
                await client.send(b"nonsense\n")
                await client.rest()
    [line] = [each for each in log if each["event"] == "request_refused"]
    assert line["peer"] == f"unix:{os.getuid()}:{os.getpid()}"


async def test_a_client_cannot_say_who_it_is(autojump_clock):
    with capture_logs() as log:
        async with LocalServer(ScriptedBackend()).opened() as server:
            async with server.connect() as client:
                await client.ask("r", peer_uid=0, peer_pid=1, peer={"uid": 0})
    [line] = [each for each in log if each["event"] == "request_done"]
    assert line["peer_pid"] == os.getpid()


async def test_who_is_not_let_in_is_logged_and_counted(autojump_clock, monkeypatch):
    monkeypatch.setattr("inferd.server.identity.access.is_operator", lambda _: False)
    server = LocalServer(ScriptedBackend())
    server.acceptor.access = Access({"infer.sock": Rule()})
    with capture_logs() as log:
        async with server.opened(), server.connect() as client:
            [frame] = await client.rest()
    assert frame["code"] == "permission_denied"
    [line] = log
    assert line["peer"] == f"unix:{os.getuid()}:{os.getpid()}"
    counted = 'inferd_refused_connections_total{code="permission_denied"'
    assert counted in server.metrics.text()
