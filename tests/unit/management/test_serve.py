"""The helper's socket, and its end once nobody asks."""

import os
import signal
import socket
import subprocess
import sys

import msgspec
import pytest
import trio

from inferd.client.asynchronous import connect
from inferd.limits.bridge import HELPER_IDLE_S, MAX_HELPER_CONNECTIONS
from inferd.management.serve import HELPER, accept_all, await_idle
from inferd.wire.management import HELPER_FRAMES, HELPER_SOCKET, HelperDone
from tests.daemon.configuration import clean_environ

LIST = b'{"command":"list","principal":"ada"}\n'


async def test_a_helper_ends_when_no_connection_was_open_for_a_while(
    serve, allowing, autojump_clock
):
    service = serve(allowing())
    service.n_connections = 1
    async with trio.open_nursery() as nursery:
        nursery.start_soon(await_idle, service, nursery.cancel_scope)
        await trio.sleep(10 * HELPER_IDLE_S)
        service.n_connections = 0
        service.last_active_at = closed_at = trio.current_time()
    assert closed_at + HELPER_IDLE_S <= trio.current_time()
    assert trio.current_time() <= closed_at + 2 * HELPER_IDLE_S


async def test_further_connections_wait_until_there_is_room(serve, allowing, tmp_path):
    sock = trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_STREAM)
    await sock.bind(str(tmp_path / HELPER_SOCKET))
    sock.listen(MAX_HELPER_CONNECTIONS)
    service = serve(allowing())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(accept_all, service, trio.SocketListener(sock))
        held = [
            await connect(HELPER_SOCKET, tmp_path)
            for _ in range(MAX_HELPER_CONNECTIONS)
        ]
        async with await connect(HELPER_SOCKET, tmp_path) as last:
            await last.send_all(LIST)
            await held[0].aclose()
            assert isinstance(
                HELPER_FRAMES.decode(await last.receive_some()), HelperDone
            )
            assert service.n_connections < MAX_HELPER_CONNECTIONS + 1
        for each in held:
            await each.aclose()
        nursery.cancel_scope.cancel()


@pytest.mark.slow  # a process
def test_a_socket_of_systemd_is_used_and_left(tmp_path):
    path = tmp_path / HELPER_SOCKET
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        code = (
            f"import os; os.dup2({listener.fileno()}, 3); "
            "os.environ['LISTEN_PID'] = str(os.getpid()); "
            f"os.execv({sys.executable!r}, [{sys.executable!r}, '-m', 'inferd', 'bridge', "
            "'helper'])"
        )
        environ = {
            **clean_environ(),
            "LISTEN_FDS": "1",
            "LISTEN_FDNAMES": HELPER.fd_name,
            "INFERD_MODELS": str(tmp_path / "models"),
        }
        with subprocess.Popen(
            [sys.executable, "-c", code], env=environ, pass_fds=(listener.fileno(),)
        ) as process:
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(path))
                client.sendall(LIST)
                assert msgspec.json.decode(client.recv(1000)) == {"type": "done"}
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
    assert os.path.lexists(path)
