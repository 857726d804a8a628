"""A daemon at sockets that somebody else holds."""

import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.configuration import ABSENT, to_toml
from tests.daemon.connection import Connection
from tests.daemon.harness import (
    DaemonProcess,
    Frame,
    MakeDaemon,
    clean_environ,
    eventually,
    generate,
    mock,
)

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PATHS = f"{ABSENT}:{ROOT}"
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


@pytest.mark.long
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


@pytest.mark.long
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


# --- changes of the configuration -------------------------------------------------------

EMBED = "infer.embed.sock"
VECTOR: Frame = {"id": "e", "input": ["hello"]}
WRITES: Frame = {"name": "parrot", "kind": "echo", "greeting": "polly"}
"""A backend that embeds nothing, of a kind of the tests."""


def serve(config: Path) -> list[str]:
    """Write the command of a daemon that has that kind."""
    program = "tests.fakes.kinds.command"
    return [sys.executable, "-m", program, "serve", "--config", str(config)]


def write(config: Path, directory: Path, *backends: Frame) -> None:
    listen = {"directory": str(directory)}
    config.write_text(to_toml({"listen": listen, "backend": [*backends]}))


def reload(daemon: DaemonProcess, *backends: Frame) -> Frame:
    write(daemon.config_file, daemon.directory, *backends)
    return daemon.admin().order("reload")


def embed(path: Path) -> Frame:
    with Connection(path) as connection:
        return connection.ask(VECTOR)[-1]


@pytest.mark.parametrize("held", [NAMES, ()], ids=["inherited", "bound"])
def test_a_reload_serves_what_backends_can_serve_then_and_refuses_the_rest(
    make_daemon: MakeDaemon, held
):
    daemon = make_daemon({"backend": [WRITES]}, environ={"PYTHONPATH": PATHS})
    daemon.command = serve(daemon.config_file)[:-1]
    if held:
        daemon.hold(*held)
    path = daemon.start().directory / EMBED
    assert path.exists() == bool(held)
    for round_ in range(2):
        added = reload(daemon, WRITES, mock(token_delay_ms=20, tokens=["x"] * 20))
        assert (added["ok"], added["needs_restart"]) == (True, [])
        assert embed(path)["type"] == "embeddings"
        kept, running = daemon.connect(EMBED), daemon.begin("r", model="mock")
        running.frame()
        assert reload(daemon, WRITES)["ok"]
        with Connection(path) as refused:
            [frame] = refused.read_to_eof()
        assert (frame["id"], frame["code"]) == ("", "backend_unavailable")
        assert frame["message"] == f"no backend serves {EMBED}"
        assert running.frames()[-1]["type"] == "done"
        for _ in range(2):  # who was served is told with each request
            assert kept.ask(VECTOR)[-1]["code"] == "backend_unavailable"
        assert reload(daemon, WRITES, mock())["ok"], round_
        assert kept.ask(VECTOR)[-1]["type"] == "embeddings"
        assert reload(daemon, WRITES)["ok"]
    assert daemon.ask()[-1]["backend"] == "parrot"
    assert daemon.stop() == 0
    assert path.exists() == bool(held)


@contextmanager
def activated(config: Path, *paths: Path, names: str):
    """Have systemd's own tool start a daemon at the first connection."""
    activate = shutil.which("systemd-socket-activate")
    assert activate, "package systemd"
    listen = [f"--listen={path}" for path in paths]
    env = ["env", f"PYTHONPATH={PATHS}"]
    with subprocess.Popen(
        [activate, *listen, f"--fdname={names}", *env, *serve(config)],
        stderr=subprocess.DEVNULL,
        env=clean_environ(),
    ) as process:
        try:
            assert eventually(lambda: all(path.exists() for path in paths))
            yield process
        finally:
            process.terminate()
        assert process.wait(90) == 0


def test_systemd_s_own_tool_hands_them_over_and_a_reload_serves_one_more(
    make_daemon: MakeDaemon, short_dir
):
    daemon = make_daemon({"backend": [WRITES]})
    config, infer, path = daemon.config_file, short_dir / "i", short_dir / "e"
    with activated(config, infer, path, names="infer:infer.embed") as process:
        with Connection(infer) as connection:
            assert connection.ask(generate())[-1]["type"] == "done"
        with Connection(path) as refused:
            assert refused.read_to_eof()[0]["code"] == "backend_unavailable"
        write(config, daemon.directory, WRITES, mock())
        process.send_signal(signal.SIGHUP)
        assert eventually(lambda: embed_or_refusal(path) == "embeddings")
        write(config, daemon.directory, WRITES)
        process.send_signal(signal.SIGHUP)
        assert eventually(lambda: embed_or_refusal(path) == "error")


def embed_or_refusal(path: Path) -> str:
    """Return the type of the first frame of an answer, or of a refusal."""
    with Connection(path) as connection:
        with suppress(BrokenPipeError):  # it was refused before
            connection.send(VECTOR)
        connection.half_close()
        return str(connection.read_to_eof()[0]["type"])
