import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.harness import PATIENCE_S, MakeDaemon, mock

pytestmark = pytest.mark.slow


@pytest.fixture
def manager() -> Iterator[socket.socket]:
    """Stand in for the service manager."""
    with (
        tempfile.TemporaryDirectory(prefix="inferd-") as scratch,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock,
    ):
        sock.bind(str(Path(scratch) / "notify"))
        sock.settimeout(PATIENCE_S)
        yield sock


def hear_until(manager: socket.socket, word: str) -> list[str]:
    said: list[str] = []
    while word not in said:
        said += manager.recv(4096).decode().splitlines()
    return said


def notified(make_daemon: MakeDaemon, manager: socket.socket, **environ: str):
    daemon = make_daemon(
        {"backend": [mock()]},
        environ={"NOTIFY_SOCKET": manager.getsockname(), **environ},
    )
    daemon.spawn()
    return daemon


def test_ready_is_said_once_the_sockets_answer_and_stopping_when_it_drains(
    make_daemon: MakeDaemon, manager
):
    daemon = notified(make_daemon, manager)
    said = hear_until(manager, "READY=1")
    assert daemon.ask()[-1]["type"] == "done"
    assert [line for line in said if line.startswith("EXTEND_TIMEOUT_USEC=")]
    assert "STOPPING=1" not in said
    assert daemon.stop() == 0
    assert "STOPPING=1" in hear_until(manager, "STOPPING=1")


def test_the_watchdog_is_fed_where_that_is_asked(make_daemon: MakeDaemon, manager):
    notified(make_daemon, manager, WATCHDOG_USEC="200000")
    hear_until(manager, "READY=1")
    assert [manager.recv(4096) for _ in range(10)] == [b"WATCHDOG=1"] * 10
