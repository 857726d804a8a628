"""A daemon at sockets that somebody else holds."""

import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.connection import Connection
from tests.daemon.harness import (
    DaemonProcess,
    MakeDaemon,
    clean_environ,
    eventually,
    generate,
    mock,
)

pytestmark = pytest.mark.slow

NAMES = ("infer.embed", "admin", "infer", "infer.rerank", "infer.v2")


class Storm:
    """Clients that ask one short question after the other, each on a connection."""

    def __init__(self, path: Path) -> None:
        self.outcomes: Counter[str] = Counter()
        self._path = path
        self._stop = threading.Event()

    @contextmanager
    def raging(self, n_clients: int = 8):
        threads = [threading.Thread(target=self._run) for _ in range(n_clients)]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()

    def grows_by(self, n_answers: int) -> bool:
        wanted = self.outcomes["done"] + n_answers
        return eventually(lambda: self.outcomes["done"] >= wanted)

    def _run(self) -> None:
        while not self._stop.is_set():
            self.outcomes[self._ask()] += 1

    def _ask(self) -> str:
        try:
            connection = Connection(self._path)
        except OSError as error:
            return f"refused: {error.strerror}"
        with connection:
            try:
                last = connection.ask(generate())[-1]
            except (OSError, AssertionError):
                return "lost"
        return str(last.get("code", last["type"]))


def test_sockets_are_adopted_in_any_order_and_left_as_they_were(
    make_daemon: MakeDaemon,
):
    daemon = make_daemon({"backend": [mock()]})
    daemon.hold(*NAMES)
    before = {path: path.stat() for path in daemon.directory.glob("*.sock")}
    daemon.start()
    assert daemon.ask()[-1]["type"] == "done"
    [ready] = daemon.logged(msg="daemon.ready")
    assert len(ready["inherited"]) == 5
    assert daemon.stop() == 0
    after = {path: path.stat() for path in daemon.directory.glob("*.sock")}
    assert len(before) == 5
    for path, info in before.items():
        assert (info.st_ino, info.st_mode) == (after[path].st_ino, after[path].st_mode)


def test_what_is_not_inherited_is_bound_and_unlinked_as_ever(make_daemon: MakeDaemon):
    daemon = make_daemon({"backend": [mock()]})
    daemon.hold("infer")
    daemon.start()
    assert len([*daemon.directory.glob("*.sock")]) == 5
    assert daemon.stop() == 0
    left = sorted(path.name for path in daemon.directory.iterdir())
    assert left == ["infer.sock", "inferd.lock"]


def test_a_restart_in_a_storm_of_clients_loses_no_request(make_daemon: MakeDaemon):
    daemon = make_daemon({"backend": [mock(tokens=["a", "b"], token_delay_ms=1)]})
    daemon.hold("infer", "admin")
    daemon.start()
    with Storm(daemon.infer_sock).raging() as storm:
        for _ in range(3):
            assert storm.grows_by(50)
            assert daemon.stop() == 0
            daemon.start()
        assert storm.grows_by(50)
    assert set(storm.outcomes) == {"done"}


def test_a_killed_daemon_refuses_no_connection(make_daemon: MakeDaemon):
    daemon = make_daemon({"backend": [mock()]})
    daemon.hold("admin", "infer")
    daemon.start()
    with Storm(daemon.infer_sock).raging() as storm:
        for _ in range(3):
            assert storm.grows_by(50)
            daemon.send_signal(signal.SIGKILL)
            assert daemon.wait() == -signal.SIGKILL
            daemon.start()
        assert storm.grows_by(50)
    assert set(storm.outcomes) <= {"done", "lost"}


def test_a_worker_has_none_of_the_sockets_and_hears_nothing_of_them(
    make_daemon: MakeDaemon,
):
    daemon = make_daemon({"backend": [mock()]})
    daemon.hold(*NAMES)
    daemon.start()
    [worker] = daemon.worker_pids()
    assert b"LISTEN_" not in Path(f"/proc/{worker}/environ").read_bytes()
    links = [str(fd.readlink()) for fd in Path(f"/proc/{worker}/fd").iterdir()]
    assert len([link for link in links if link.startswith("socket:")]) == 1


def test_a_socket_of_no_surface_tells_each_client_so(make_daemon: MakeDaemon):
    daemon = make_daemon({"backend": [mock()], "listen": {"embed": False}})
    daemon.hold("infer.embed")
    daemon.start()
    for _ in range(3):
        with daemon.connect("infer.embed.sock") as connection:
            [frame] = connection.read_to_eof()
        assert (frame["type"], frame["id"]) == ("error", "")
        assert frame["code"] == "backend_unavailable"
        assert frame["message"] == "no backend serves infer.embed.sock"


def refused_start(daemon: DaemonProcess, leaf: str) -> dict[str, Any]:
    """Start a daemon that fails; return what a client got that was there before."""
    with daemon.connect(leaf) as connection:
        connection.send(generate())
        daemon.spawn()
        [frame] = connection.read_to_eof()
    assert daemon.wait() == 2
    return frame


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"backend": [mock(nonsense=1)]}, "nonsense"),
        (
            {
                "backend": [
                    {"name": "a", "kind": "llamacpp", "model": "/no/missing.gguf"}
                ]
            },
            ": missing.gguf",
        ),
        ({"backend": [mock(die_at_load=True)]}, "killed by SIGKILL"),
        ({"backend": [mock()], "access": {"v2": {"uids": ["no-one-here"]}}}, "no-one"),
    ],
    ids=["configuration", "model", "worker", "rule"],
)
def test_a_failed_start_is_told_to_the_clients_that_wait(
    make_daemon: MakeDaemon, config, reason
):
    daemon = make_daemon(config)
    daemon.hold("infer", "infer.v2", "admin")
    frame = refused_start(daemon, "infer.sock")
    assert (frame["type"], frame["id"]) == ("error", "")
    assert frame["code"] == "backend_unavailable"
    assert frame["message"].startswith("the daemon did not start: ")
    assert reason in frame["message"]
    assert "/" not in frame["message"]


def test_a_failed_start_is_told_to_operators_in_a_reply(make_daemon: MakeDaemon):
    daemon = make_daemon({"backend": [mock(nonsense=1)]})
    daemon.hold("infer", "admin")
    reply = refused_start(daemon, "admin.sock")
    assert (reply["type"], reply["ok"]) == ("reply", False)
    assert reply["error"].startswith("the daemon did not start: ")


def test_a_daemon_that_inherits_nothing_fails_at_once(make_daemon: MakeDaemon):
    daemon = make_daemon({"backend": [mock(nonsense=1)]})
    assert "nonsense" in daemon.refusal()


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (("infer", "nonsense"), "an inherited socket is called 'nonsense'; "),
        (("infer", "nonsense", "admin"), "an inherited socket is called 'nonsense'; "),
    ],
)
def test_an_unknown_socket_ends_the_start(make_daemon: MakeDaemon, names, reason):
    daemon = make_daemon({"backend": [mock()]})
    daemon.hold(*names)
    assert daemon.refusal().startswith(f"error: {reason}")


def test_a_second_daemon_is_refused_no_matter_who_holds_the_sockets(
    make_daemon: MakeDaemon,
):
    first = make_daemon({"backend": [mock()]})
    first.hold("infer", "admin")
    first.start()
    second = make_daemon(
        {"backend": [mock()], "listen": {"directory": str(first.directory)}}
    )
    assert "already holds the lock" in second.refusal()
    assert first.stop() == 0
    assert "something listens there" in second.refusal()
    assert first.start().ask()[-1]["type"] == "done"


def test_systemd_s_own_tool_hands_them_over(make_daemon: MakeDaemon, short_dir):
    activate = shutil.which("systemd-socket-activate")
    assert activate, "package systemd"
    config = make_daemon({"backend": [mock()]}).config_file
    path = short_dir / "s"
    command = [activate, f"--listen={path}", "--fdname=infer", sys.executable]
    with subprocess.Popen(
        [*command, "-m", "inferd", "serve", "--config", str(config)],
        stderr=subprocess.DEVNULL,
        env=clean_environ(),
    ) as process:
        try:
            assert eventually(path.exists)
            with Connection(path) as connection:
                assert connection.ask(generate())[-1]["type"] == "done"
        finally:
            process.terminate()
        assert process.wait(90) == 0
