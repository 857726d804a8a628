import fcntl
import json
import os
import resource
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import trio
import trio.testing

from inferd import app
from inferd.app import log_file, make_daemon
from inferd.cli.commands.serve import locate_models
from inferd.config.kinds.registry import KINDS
from inferd.config.parse import parse_config
from inferd.config.served import NOTHING_SERVED
from inferd.config.settings import Config, ModelsSettings
from inferd.paths import LOG_FILE
from inferd.wire.status import LifecycleFrame


def mock_config(directory, *names: str) -> str:
    backends = "".join(
        f'[[backend]]\nname = "{name}"\nkind = "mock"\n' for name in names or ("a",)
    )
    return f'[listen]\ndirectory = "{directory}"\n{backends}'


@pytest.fixture
def _file_limit():
    """Put the limit of open files back afterwards."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


class StoppableDaemon:
    """Runs until it has been told to stop as often as it wants."""

    def __init__(self, n_stops: int) -> None:
        self.n_stopped = self.n_reloaded = 0
        self._n_stops = n_stops
        self._ended = trio.Event()

    def order_reload(self) -> None:
        self.n_reloaded += 1

    def stop(self) -> None:
        self.n_stopped += 1
        if self.n_stopped == self._n_stops:
            self._ended.set()

    async def run(self) -> None:
        await self._ended.wait()


def test_every_configured_backend_has_an_engine(short_dir):
    config = parse_config(mock_config(short_dir, "a", "b"))
    daemon = make_daemon(config, locate_models(config))
    assert [backend.name for backend in daemon._backends] == ["a", "b"]
    assert daemon._listeners.directory == short_dir


def test_the_memory_that_models_get_is_among_the_metrics(short_dir):
    config = parse_config(f"{mock_config(short_dir)}[memory]\nbudget = 5000\n")
    text = make_daemon(config, locate_models(config))._commands.metrics.text()
    assert "\ninferd_memory_budget_bytes 5000.0\n" in text
    assert "\ninferd_memory_needed_bytes 0.0\n" in text


def test_the_start_timeout_is_extended_by_the_configured_silence(
    short_dir, monkeypatch
):
    text = f"{mock_config(short_dir)}[limits]\nload_silence_s = 700\n"
    monkeypatch.setenv("NOTIFY_SOCKET", f"{short_dir}/notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"{short_dir}/notify")
        manager.setblocking(False)
        config = parse_config(text)
        daemon = make_daemon(config, locate_models(config))
        loading = LifecycleFrame(status="loading_model", phase="mmap", backend="a")
        daemon._notifier.follow(loading)
        assert b"EXTEND_TIMEOUT_USEC=700000000" in manager.recv(1000)


@pytest.mark.parametrize(
    "numbers", [[signal.SIGTERM], [signal.SIGINT], [signal.SIGTERM, signal.SIGINT]]
)
async def test_every_signal_reaches_the_daemon(numbers):
    daemon = StoppableDaemon(len(numbers))
    with trio.fail_after(90):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(app._run_until_signal, daemon)  # type: ignore[arg-type]  # as far as it goes
            for n, number in enumerate(numbers):
                await trio.testing.wait_all_tasks_blocked()
                assert daemon.n_stopped == n
                signal.raise_signal(number)
    assert daemon.n_stopped == len(numbers)


@pytest.mark.parametrize("is_on_terminal", [False, True])
async def test_a_hangup_reloads_or_ends_a_daemon_on_a_terminal(
    is_on_terminal, monkeypatch
):
    monkeypatch.setattr("os.isatty", lambda fd: is_on_terminal and fd == 2)
    daemon = StoppableDaemon(1)
    with trio.fail_after(90):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(app._run_until_signal, daemon)  # type: ignore[arg-type]  # as far as it goes
            for _ in range(1 if is_on_terminal else 3):
                await trio.testing.wait_all_tasks_blocked()
                signal.raise_signal(signal.SIGHUP)
            await trio.testing.wait_all_tasks_blocked()
            assert daemon.n_reloaded == 3 * (not is_on_terminal)
            if not is_on_terminal:
                signal.raise_signal(signal.SIGTERM)
    assert daemon.n_stopped == 1


@contextmanager
def ignoring(number: signal.Signals) -> Iterator[None]:
    before = signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(number, before)


async def test_an_interrupt_that_was_ignored_at_the_start_stays_ignored():
    daemon = StoppableDaemon(1)
    with ignoring(signal.SIGINT), trio.fail_after(90):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(app._run_until_signal, daemon)  # type: ignore[arg-type]  # as far as it goes
            await trio.testing.wait_all_tasks_blocked()
            signal.raise_signal(signal.SIGINT)
            await trio.testing.wait_all_tasks_blocked()
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
            assert daemon.n_stopped == 0
            signal.raise_signal(signal.SIGTERM)
    assert daemon.n_stopped == 1


async def test_a_hang_up_that_was_ignored_at_the_start_is_a_reload(monkeypatch):
    monkeypatch.setattr("os.isatty", lambda _: True)
    daemon = StoppableDaemon(1)
    with ignoring(signal.SIGHUP), trio.fail_after(90):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(app._run_until_signal, daemon)  # type: ignore[arg-type]  # as far as it goes
            await trio.testing.wait_all_tasks_blocked()
            signal.raise_signal(signal.SIGHUP)
            await trio.testing.wait_all_tasks_blocked()
            assert (daemon.n_reloaded, daemon.n_stopped) == (1, 0)
            signal.raise_signal(signal.SIGTERM)


@pytest.mark.usefixtures("_file_limit")
def test_a_user_that_is_not_there_is_one_line(inferd, short_dir):
    config = short_dir / "config.toml"
    rule = "[access]\ninfer = {uids = ['no-such-user']}\n"
    config.write_text(mock_config(short_dir / "run") + rule)
    code, _, stderr = inferd("serve", "--config", config)
    assert (code, len(stderr.splitlines())) == (2, 1)
    assert stderr.startswith("error: access.infer.uids = 'no-such-user': expected")


@pytest.mark.usefixtures("_file_limit")
def test_a_lock_that_is_held_is_one_line(inferd, short_dir):
    config = short_dir / "config.toml"
    config.write_text(mock_config(short_dir / "run"))
    (short_dir / "run").mkdir()
    with (short_dir / "run" / "inferd.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code, stdout, stderr = inferd("serve", "--config", config)
    assert (code, stdout) == (2, "")
    assert stderr.splitlines() == [
        f"error: another inferd daemon already holds the lock at {short_dir}/run/inferd.lock"
    ]


def test_an_inherited_socket_that_makes_no_sense_is_one_line(
    inferd, short_dir, monkeypatch
):
    config = short_dir / "config.toml"
    config.write_text(mock_config(short_dir / "run"))
    monkeypatch.setenv("LISTEN_PID", str(os.getpid()))
    monkeypatch.setenv("LISTEN_FDS", "many")
    code, stdout, stderr = inferd("serve", "--config", config)
    assert (code, stdout) == (2, "")
    assert stderr.splitlines() == ["error: LISTEN_FDS is not a number: 'many'"]


@pytest.mark.slow
@pytest.mark.usefixtures("_file_limit")
def test_a_backend_that_does_not_get_ready_is_one_line(inferd, short_dir):
    config = short_dir / "config.toml"
    config.write_text(mock_config(short_dir / "run") + "die_at_load = true\n")
    code, _, stderr = inferd("serve", "--config", config)
    assert code == 2
    assert stderr.splitlines()[-1].startswith("error: backend a: killed by SIGKILL")
    assert not list((short_dir / "run").glob("*.sock"))


@pytest.mark.usefixtures("_file_limit")
@pytest.mark.parametrize(
    "model",
    ["embedded:nothing", pytest.param("/nowhere/m.gguf", marks=pytest.mark.slow)],
)
def test_a_model_that_cannot_be_had_is_an_error_of_the_log_too(
    model, inferd, monkeypatch, short_dir
):
    monkeypatch.setenv("INFERD_LOG_DIR", str(short_dir / "logs"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_dir))
    code, _, stderr = inferd("serve", "--model", model)
    assert (code, len(stderr.splitlines())) == (2, 1)
    [line] = map(json.loads, (short_dir / "logs" / LOG_FILE).read_text().splitlines())
    assert (line["level"], line["msg"]) == ("error", "daemon.failed")
    assert stderr == f"error: {line['reason']}\n"


def test_a_broken_configuration_is_reported_on_stderr_only(
    inferd, monkeypatch, short_dir
):
    monkeypatch.setenv("INFERD_LOG_DIR", str(short_dir / "logs"))
    config = short_dir / "config.toml"
    config.write_text("[log]\nfile = 3\n")
    code, _, stderr = inferd("serve", "--config", config)
    assert (code, len(stderr.splitlines())) == (2, 1)
    assert stderr.startswith(f"error: {config}: log.file = 3: ")
    assert not (short_dir / "logs").exists()


def test_the_log_is_where_and_as_long_as_it_is_configured(monkeypatch, short_dir):
    monkeypatch.setenv("INFERD_LOG_DIR", str(short_dir / "usual"))
    tables = {
        "": short_dir / "usual" / LOG_FILE,
        "file = false": None,
        f'directory = "{short_dir}"': short_dir / LOG_FILE,
    }
    for table, path in tables.items():
        file = log_file(parse_config(f"[log]\n{table}\n"))
        assert (file and str(file)) == (path and str(path))
    monkeypatch.setenv("INFERD_LOG_DIR", "")
    assert log_file(Config()) is None


@pytest.mark.usefixtures("_file_limit")
def test_a_daemon_may_have_as_many_files_as_it_may(monkeypatch):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    app._raise_file_limit()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)


async def test_a_look_at_a_store_that_hangs_does_not_keep_the_daemon_from_ending(
    monkeypatch,
):
    is_over = threading.Event()

    def hang(*_args):
        trio.from_thread.run_sync(scope.cancel)
        is_over.wait(60)

    monkeypatch.setattr(app, "view_stores", hang)
    with trio.CancelScope() as scope:
        await app._look_at_store(KINDS, ModelsSettings(serve=True), NOTHING_SERVED)
    is_over.set()
    assert scope.cancelled_caught
