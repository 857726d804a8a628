import os
import signal
import socket
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import trio
import trio.testing

from inferd.limits.connections import READ_AHEAD_BYTES, READ_BYTES
from inferd.limits.server import MAX_CLIENT_DESCRIPTORS
from inferd.server.connection.response_writer import ResponseWriter
from inferd.server.request_context import RequestContext
from inferd.wire.blocks import BlocksRequest
from tests.daemon.harness import DaemonProcess, MakeDaemon, eventually, mock
from tests.fakes.backend import ScriptedBackend
from tests.fakes.fds import lingering, memfd, memfds, n_open, send_with
from tests.fakes.serving import LocalServer
from tests.fakes.streams import append, blocks

V2 = "infer.v2.sock"
SOUND = {"kind": "audio", "id": "s", "sample_rate": 16000, "open": True}
OPEN = blocks(attachments=[SOUND])
CROWD = 30


class Deaf:
    """Takes nothing of what is appended, as long as nobody cancels it."""

    async def answer(
        self, request: BlocksRequest, reply: ResponseWriter, activity: RequestContext
    ):
        with activity.scope:
            await trio.sleep_forever()
        raise activity.failure or trio.BrokenResourceError


def deaf_server() -> LocalServer:
    server = LocalServer(ScriptedBackend())
    server.endpoints[V2] = replace(server.endpoints[V2], service=Deaf())
    return server


async def test_many_clients_that_hand_over_descriptors_leave_the_daemon_its_own(
    autojump_clock,
):
    n_before = n_open()
    async with (
        LocalServer(ScriptedBackend()).opened() as server,
        AsyncExitStack() as stack,
    ):
        crowd = [
            await stack.enter_async_context(server.connect(V2)) for _ in range(CROWD)
        ]
        n_connected = n_open()
        for client in crowd:
            with memfds(*[b""] * 32) as fds:
                await send_with(client.stream, b"{", fds)
            await trio.testing.wait_all_tasks_blocked()
        assert n_open() - n_connected <= MAX_CLIENT_DESCRIPTORS // 2
        for client in crowd:
            await client.aclose()
        async with server.connect(V2) as sound:
            await sound.send(blocks())
            assert (await sound.answer())[-1]["type"] == "done"
        assert server.deps.fd_quota.n_held == 0
    assert n_open() <= n_before + 1


async def test_what_is_appended_and_not_taken_is_bounded(autojump_clock):
    line = append(bytes="A" * 50_000)
    async with deaf_server().opened() as server, server.connect(V2) as client:
        with trio.move_on_after(1) as scope:
            await client.send(OPEN + line * 1000)
        assert scope.cancelled_caught
        reader = server.connections[0]._reader
        [activity] = server.in_flight
        held = activity.appends.pending_bytes + reader._lines.pending_bytes
        assert held < READ_AHEAD_BYTES + READ_BYTES + len(line)


async def test_what_is_appended_by_descriptor_and_not_taken_is_bounded(autojump_clock):
    async with deaf_server().opened() as server, server.connect(V2) as client:
        await client.send(OPEN)
        with trio.move_on_after(1), memfds(b"") as fds:
            while True:
                await send_with(client.stream, append(fd=0), fds)
        assert server.deps.fd_quota.n_held <= 64


@pytest.mark.parametrize("behind", [b"x" * READ_AHEAD_BYTES, blocks() * 64])
async def test_a_request_that_would_wait_for_what_cannot_be_read_ends(
    behind, autojump_clock
):
    async with deaf_server().opened() as server, server.connect(V2) as client:
        await client.send(OPEN + behind)
        [frame] = await client.answer()
        assert frame["code"] == "invalid_request"


KINDS = {
    "memfd": lambda: memfd(b"x", seals=0),
    "pipe": lambda: os.pipe()[0],
    "socket": lambda: socket.socket(socket.AF_UNIX).detach(),
    "null": lambda: os.open(os.devnull, os.O_RDWR),
}


@pytest.mark.slow
@pytest.mark.parametrize("n_fds", [1, 32, 33, 253])
def test_a_real_daemon_is_as_it_was_after_descriptors_of_all_kinds(
    n_fds, shared_daemon: DaemonProcess
):
    daemon = shared_daemon
    daemon.leave()
    daemon.ask()
    open_files = Path(f"/proc/{daemon.pid}/fd")
    n_before = len([*open_files.iterdir()])
    for kind, line in product(KINDS.values(), (blocks(), OPEN, append(), b"{")):
        fds = [kind() for _ in range(n_fds)]
        with daemon.connect(V2) as client:
            client.hand_over(line, fds)
        for fd in fds:
            os.close(fd)
    assert eventually(lambda: len([*open_files.iterdir()]) <= n_before)
    assert daemon.ask()[-1]["type"] == "done"


HOLDING_UP = {
    "with half a line": (b"{", False),
    "with a line that is no request": (b"{}\n", False),
    "with nothing else, by one who has left": (b"{", True),
}


@pytest.mark.slow
@pytest.mark.parametrize("how", HOLDING_UP)
@pytest.mark.parametrize("leaf", ["infer.sock", V2, "admin.sock"])
def test_a_socket_that_waits_to_be_closed_keeps_nobody_waiting(
    leaf, how, make_daemon: MakeDaemon
):
    daemon = make_daemon({"backend": [mock()]}).start()
    data, has_left = HOLDING_UP[how]
    with lingering() as (fd, _), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(daemon.directory / leaf))
        daemon.send_signal(signal.SIGSTOP)  # or it might close first, and we would wait
        stat = Path(f"/proc/{daemon.pid}/stat")
        assert eventually(lambda: stat.read_text().rpartition(") ")[2][0] == "T")
        socket.send_fds(client, [data], [fd])
        os.close(fd)
        daemon.send_signal(signal.SIGCONT)
        if has_left:
            client.close()
        assert daemon.ask()[-1]["type"] == "done"
        client.close()
        assert daemon.ask()[-1]["type"] == "done"
        assert daemon.stop() == 0
