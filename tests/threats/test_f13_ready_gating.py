import socket

import pytest
import trio
import trio.testing

from tests.fakes.backend import ScriptedBackend
from tests.fakes.serving import make_daemon, ready


async def test_no_request_is_taken_before_the_backend_is_ready(
    short_dir, autojump_clock, nursery
):
    backend = ScriptedBackend(is_ready=False)
    server = make_daemon(short_dir, backend)
    nursery.start_soon(server.run)
    await trio.sleep(1000)
    with pytest.raises(FileNotFoundError):
        await server.connect()
    backend.become_ready()
    await ready(server)
    async with await server.connect() as client:
        assert (await client.ask())[-1]["type"] == "done"
    nursery.cancel_scope.cancel()


async def test_a_socket_left_by_a_daemon_before_takes_nobody_either(
    short_dir, autojump_clock, nursery
):
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(f"{short_dir}/infer.sock")
    server = make_daemon(short_dir, ScriptedBackend(is_ready=False))
    nursery.start_soon(server.run)
    await trio.testing.wait_all_tasks_blocked()
    with pytest.raises(ConnectionRefusedError):
        await server.connect()
    nursery.cancel_scope.cancel()


async def test_ready_is_not_said_before_it_is_so(short_dir, autojump_clock, nursery):
    backend = ScriptedBackend(is_ready=False)
    server = make_daemon(short_dir, backend)
    nursery.start_soon(server.run)
    await trio.testing.wait_all_tasks_blocked()
    async with await server.admin() as listener:
        assert (await listener.frame() or {})["status"] == "starting"
        backend.become_ready()
        while (await listener.frame() or {})["status"] != "ready":
            pass
        async with await server.connect() as client:
            assert (await client.ask())[-1]["type"] == "done"
    nursery.cancel_scope.cancel()
