"""Drive a real daemon from outside: its process, its sockets, its signals, its log.

JSON is read and written with the standard library alone, so what travels is checked by
other code than the daemon's own. Whatever is waited for has a bound.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final, Protocol, Self

from tests.daemon import forked_workers
from tests.daemon.activation import HeldSockets
from tests.daemon.configuration import Config, clean_environ, llamacpp, mock, to_toml
from tests.daemon.connection import (
    PATIENCE_S,
    Connection,
    Frame,
    Listener,
    blocks,
    content_of,
    generate,
    to_line,
)
from tests.daemon.preloaded import COMMAND, DAEMON, DOCTOR, ForkedProcess, Preloaded

__all__ = [
    "PATIENCE_S",
    "Config",
    "Connection",
    "DaemonProcess",
    "Frame",
    "Listener",
    "MakeDaemon",
    "blocks",
    "clean_environ",
    "content_of",
    "eventually",
    "generate",
    "llamacpp",
    "mock",
    "to_line",
]

POLL_S: Final = 0.002
"""Seconds between two looks at what an external process does."""

MARK: Final = "INFERD_TEST_DAEMON"
"""Environment variable by which a daemon's processes are found, orphaned or not."""

STARTED: Final = (b"inferd.worker", b"inferd.line_decoder", b"tests.fakes.kinds.shout")
"""What is in the command line of each of them."""

WORKER: Final = re.compile(rb"\0-m\0inferd\.worker(?:\.\w+)?\0")
"""In the command line of a worker, and of no preparer."""

N_ROUND_TRIPS: Final = 5

SERVE: Final = (*COMMAND, "serve", "--config")
WITH_KINDS: Final = (sys.executable, "-m", "tests.fakes.kinds.command")
"""What ``inferd`` is with more kinds of backends."""
SERVE_WITH_KINDS: Final = (*WITH_KINDS, "serve", "--config")
FORKED: Final = (SERVE, SERVE_WITH_KINDS)
"""Command lines of daemons that are forks; an equal one that is a list starts none."""

BAD_LEVELS: Final = ("error", "critical")
"""Levels of log lines that tell of a bug."""


def eventually(is_so: Callable[[], bool], *, within_s: float = PATIENCE_S) -> bool:
    """Look until something is so; false if it is not in time."""
    deadline = time.monotonic() + within_s
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def state_of(pid: int) -> tuple[str, int]:
    """Give a process's state and its parent's id; ``""`` and 0 where it is gone."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        return fields[0], int(fields[1])
    return "", 0


class DaemonProcess:
    """One daemon in a directory of its own.

    Args:
        config: tables of its configuration; the sockets' directory is filled in.
        environ: variables to add to its environment.
    """

    def __init__(
        self, config: Config, *, environ: Mapping[str, str] | None = None
    ) -> None:
        self.scratch = Path(tempfile.mkdtemp(prefix="inferd-"))
        listen = {"directory": str(self.scratch / "run"), **config.get("listen", {})}
        self.directory = Path(listen["directory"])
        self.config_file = self.scratch / "config.toml"
        self.config_file.write_text(to_toml({**config, "listen": listen}))
        self._mark = uuid.uuid4().hex
        self.log_file = self.scratch / "logs" / "inferd.ndjson"
        places = {"INFERD_LOG_DIR": str(self.log_file.parent), MARK: self._mark}
        self._environ = {**clean_environ(), **places, **(environ or {})}
        self._log = self.scratch / "stderr"
        self._connections: list[Connection] = []
        self._held: HeldSockets | None = None
        self._process: subprocess.Popen[bytes] | ForkedProcess | None = None
        self._is_told = False
        self.command: Sequence[str] = SERVE
        """Its command line; the path of the configuration follows."""
        self.options: Sequence[str] = ()
        """More of its command line."""

    # --- the process --------------------------------------------------------------

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._popen.pid

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process is not None and self._process.poll() is None

    def hold(self, *names: str) -> None:
        """Listen at sockets of its, which it inherits from now on."""
        self._held = HeldSockets(self.directory, names)

    def spawn(self) -> None:
        """Start it, and wait for nothing."""
        self._is_told = False
        with self._log.open("wb") as stderr:
            self._process = self._start(stderr.fileno())

    def _start(self, stderr: int) -> subprocess.Popen[bytes] | ForkedProcess:
        command = [*self.command, str(self.config_file), *self.options]
        environ, fds = self._environ, []
        if self._held is not None:
            command, fds = self._held.launch(*command), self._held.fds
            environ = environ | self._held.environ
        elif self.command in FORKED and preloaded().fits(environ):
            return preloaded().start(command, environ, stderr)
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            env=environ,
            pass_fds=fds,
        )

    def start(self) -> Self:
        """Start it and wait until it is ready: its sockets are there."""
        self.spawn()
        assert eventually(lambda: _accepts(self.admin_sock) or not self.is_running)
        try:
            with self.admin() as listener:
                listener.until("ready")
        except (AssertionError, OSError):
            raise AssertionError(f"it is not ready:\n{self.stderr()}") from None
        return self

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._is_told = number in (signal.SIGTERM, signal.SIGINT)
        self._popen.send_signal(number)

    def wait(self, *, within_s: float = PATIENCE_S) -> int:
        """Wait for its end; give the exit code."""
        return self._popen.wait(within_s)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to end and wait; give the exit code."""
        self.send_signal(number)
        return self.wait()

    def refusal(self) -> str:
        """Start it to see it fail; give the one line that it wrote."""
        self.spawn()
        assert self.wait() != 0
        [line] = self.stderr().splitlines()
        return line

    # --- its sockets --------------------------------------------------------------

    @property
    def infer_sock(self) -> Path:
        """Where its inference socket is."""
        return self.directory / "infer.sock"

    @property
    def admin_sock(self) -> Path:
        """Where its admin socket is."""
        return self.directory / "admin.sock"

    def connect(self, leaf: str = "infer.sock") -> Connection:
        """Connect to an inference socket."""
        connection = Connection(self.directory / leaf)
        self._connections.append(connection)
        return connection

    def admin(self, *, timeout_s: float = PATIENCE_S) -> Listener:
        """Listen on the admin socket, as soon as it is there; miss nothing from then on."""
        assert eventually(lambda: _accepts(self.admin_sock))
        listener = Listener(self.admin_sock, timeout_s=timeout_s)
        self._connections.append(listener)
        listener.wait_until_heard()
        return listener

    def ask(self, text: str = "hello", **fields: Any) -> list[Frame]:
        """Have one request answered on a connection of its own."""
        with self.connect() as connection:
            return connection.ask(generate(text, **fields))

    def begin(self, request_id: str, **fields: Any) -> Connection:
        """Send a request; return once it runs, waits or is refused."""
        connection = self.connect()
        connection.send(generate(id=request_id, **fields))
        self.catch_up()
        return connection

    def leave(self) -> None:
        """Close every connection, and wait until the daemon has noticed."""
        while self._connections:
            self._connections.pop().close()
        self.catch_up()

    def catch_up(self) -> None:
        """Wait until the daemon has acted on all that was sent to it before.

        Its loop takes what is there in rounds. A refusal takes several of them, and
        none of a request's steps to its place in the queue takes longer.
        """
        with self.connect() as connection:
            for _ in range(N_ROUND_TRIPS):
                [refusal] = connection.ask({"messages": []})
                assert refusal["code"] == "invalid_request"

    # --- its workers --------------------------------------------------------------

    def worker_pids(self) -> list[int]:
        """Find its workers that live, whoever is their parent by now."""
        return [
            pid for pid, command in self.processes().items() if WORKER.search(command)
        ]

    def kill_worker(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Send its only worker a signal."""
        [pid] = self.worker_pids()
        os.kill(pid, number)

    def wait_stopped(self) -> None:
        """Wait until its only worker has stopped itself."""
        [pid] = self.worker_pids()
        assert eventually(lambda: state_of(pid)[0] == "T")

    def preparers(self) -> list[int]:
        """Find the processes that write prompts: a preparer, and its fork for a job."""
        return [
            pid
            for pid, command in self.processes().items()
            if b".fork_server" in command
        ]

    def stop_fork(self) -> tuple[int, int]:
        """Stop the fork of its only preparer; return the ids of both.

        The fork of an earlier job may still be ending, and a signal does not stop that.
        """
        stopped: list[tuple[int, int]] = []

        def is_stopped() -> bool:
            pids = self.preparers()
            for pid in pids:
                state, parent = state_of(pid)
                if parent in pids and state != "T":
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGSTOP)
                elif parent in pids:
                    stopped[:] = [(parent, pid)]
            return bool(stopped)

        assert eventually(is_stopped)
        return stopped[0]

    def workers_end(self, *, within_s: float = PATIENCE_S) -> bool:
        """Wait until no worker is left, nor what it started; false if one stays."""
        return eventually(lambda: not self.processes(), within_s=within_s)

    def processes(self) -> dict[int, bytes]:
        """Give the command lines of all processes that it has started, by their ids."""
        found: dict[int, bytes] = {}
        mark = f"{MARK}={self._mark}".encode()
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # gone, or somebody else's
                command = (path / "cmdline").read_bytes()
                if (
                    any(each in command for each in STARTED)
                    and mark in (path / "environ").read_bytes()
                ):
                    found[int(path.name)] = command
        return found

    # --- its log ------------------------------------------------------------------

    def stderr(self) -> str:
        """Give all that it wrote to stderr."""
        return self._log.read_text() if self._log.exists() else ""

    def log_lines(self) -> list[Frame]:
        """Give the lines of its log."""
        lines = self.stderr().splitlines()
        return [dict(json.loads(line)) for line in lines if line.startswith("{")]

    def logged(self, **fields: object) -> list[Frame]:
        """Wait for a line of its log with such fields; give all that there are then."""

        def found() -> list[Frame]:
            return [each for each in self.log_lines() if fields.items() <= each.items()]

        eventually(lambda: found() != [])
        return found()

    # --- the end ------------------------------------------------------------------

    def finish(self) -> None:
        """End it whatever its state, clean up, and check that it behaved."""
        for connection in self._connections:
            connection.close()
        try:
            if self.is_running:
                code = self.wait() if self._is_told else self.stop()
                assert code == 0, f"the daemon ended with exit code {code}"
            self._check_log()
        finally:
            self._kill()
            if self._held is not None:
                self._held.close()
            orphans = self._kill_orphans()
            shutil.rmtree(self.scratch)
        assert not orphans, f"workers outlived their daemon: {orphans}"

    def _check_log(self) -> None:
        bad = [line for line in self.log_lines() if line["level"] in BAD_LEVELS]
        assert not bad, f"the daemon logged a bug: {bad}"
        assert "Traceback" not in self.stderr()

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _kill_orphans(self) -> list[int]:
        orphans = [] if self.workers_end() else [*self.processes()]
        for pid in orphans:
            os.kill(pid, signal.SIGKILL)
        return orphans

    @property
    def _popen(self) -> subprocess.Popen[bytes] | ForkedProcess:
        assert self._process is not None, "spawn it first"
        return self._process


@cache
def preloaded() -> Preloaded:
    """Give the process that daemons and doctors are forks of; it ends with ours."""
    environ = clean_environ()
    workers = Preloaded(
        {**environ, "OPENBLAS_NUM_THREADS": "1"}, forked_workers.MODULES
    )
    return Preloaded(environ, (*DAEMON, *DOCTOR, WITH_KINDS[-1]), workers)


def _accepts(path: Path) -> bool:
    try:
        Connection(path).close()
    except OSError:
        return False
    return True


class MakeDaemon(Protocol):
    """Makes daemons that are ended for their maker."""

    def __call__(
        self, config: Config, *, environ: Mapping[str, str] | None = None
    ) -> DaemonProcess:
        """Make a daemon that is not started."""
