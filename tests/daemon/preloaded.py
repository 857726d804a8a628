"""Start daemons, and bridges and doctors, as forks of a process that has imported what they need.

Nine tenths of the processor time of a daemon that starts and ends are its imports, and tests
start hundreds. What is forked has run nothing of the daemon's; in a fork `inferd` runs from
its command line on, in a process of its own, with the environment, directory and stderr that
it is given.

What this leaves out is the interpreter's own start. `test_activation.py`, `test_readme.py`,
`test_cli.py`, `test_log.py` and all that set variables of Python's start the command itself.
"""

import atexit
import ctypes
import gc
import json
import os
import random
import runpy
import select
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from io import FileIO
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final

PROGRAM: Final = "inferd"
COMMAND: Final = (sys.executable, "-m", PROGRAM)
DAEMON: Final = ("inferd.cli.commands.serve", "inferd.app")
"""What the daemon imports before it does anything of its own."""
BRIDGE: Final = (
    *("inferd.cli.commands.bridge", "inferd.bridge.http.listen"),
    "inferd.bridge.serve",
)
"""And what the bridge does."""
DOCTOR: Final = ("inferd.cli.commands.doctor",)
"""And what the doctor does."""

MAX_BYTES: Final = 1 << 17
"""Bytes of one order: a command line and an environment."""

ROOM: Final = "-" * 4096
"""The last argument of the process that forks: room for the command line of a fork."""

READ_AT_START: Final = ("PYTHON", "LD_", "LC_", "LANG", "MALLOC_", "GLIBC_", "TZ")
"""How variables begin that only the start of a process, or of the interpreter, reads."""

ROOT: Final = Path(__file__).parents[2]


# --- in a process of tests --------------------------------------------------------------


class ForkedProcess:
    """A process that another one than ours is the parent of, as `subprocess.Popen` is."""

    def __init__(self, pid: int, ended: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = ended

    def poll(self) -> int | None:
        """Give its exit code; ``None`` while it runs."""
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; give the exit code.

        Raises:
            subprocess.TimeoutExpired: it has not ended in time.
        """
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(PROGRAM, timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it, unless it has ended."""
        self.send_signal(signal.SIGKILL)

    def _look(self, timeout_s: float | None) -> int | None:
        if (
            self.returncode is None
            and select.select([self._ended], [], [], timeout_s)[0]
        ):
            self.returncode = int(self._ended.recv(MAX_BYTES))
            self._ended.close()
        return self.returncode


class Preloaded:
    """The process that programs are forks of; it ends with ours.

    Args:
        environ: its environment.
        modules: that it imports.
    """

    def __init__(self, environ: Mapping[str, str], modules: Sequence[str]) -> None:
        self._read = _read_at_start(environ)
        self._orders, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.daemon.preloaded"),
                    *(str(theirs.fileno()), *modules, ROOM),
                ],
                env=environ,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self._end)

    def fits(self, environ: Mapping[str, str]) -> bool:
        """Tell whether a fork can be as a process that starts with this environment."""
        return _read_at_start(environ) == self._read

    def start(
        self,
        command: Sequence[str],
        environ: Mapping[str, str],
        stderr: int,
        stdout: int | None = None,
    ) -> ForkedProcess:
        """Start what a command starts, one of ``COMMAND``, in such an environment.

        Args:
            command: its command line.
            environ: its environment, one that ``fits``.
            stderr: descriptor of its stderr.
            stdout: and of its stdout; without one, what it prints is lost.
        """
        order = json.dumps([[*command], {**environ}, os.fspath(Path.cwd())]).encode()
        ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        with theirs:
            fds = [theirs.fileno(), stderr, *([] if stdout is None else [stdout])]
            socket.send_fds(self._orders, [order], fds)
        return ForkedProcess(int(ours.recv(MAX_BYTES)), ours)

    def run(
        self, command: Sequence[str], environ: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Run such a command to its end; give what it printed."""
        with TemporaryFile("w+") as stdout, TemporaryFile("w+") as stderr:
            code = self.start(command, environ, stderr.fileno(), stdout.fileno()).wait()
            printed = [
                os.pread(each.fileno(), os.fstat(each.fileno()).st_size, 0).decode()
                for each in (stdout, stderr)
            ]
        return subprocess.CompletedProcess([*command], code, *printed)

    def _end(self) -> None:
        self._orders.close()
        self._process.wait()


def _read_at_start(environ: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value for name, value in environ.items() if name.startswith(READ_AT_START)
    }


# --- in the process that forks ----------------------------------------------------------


class Forks:
    """Forks on order, and tells who gave the order of the end.

    Args:
        orders: where they come from.
    """

    def __init__(self, orders: socket.socket) -> None:
        self._orders = orders
        self._looks = selectors.DefaultSelector()
        self._looks.register(orders, selectors.EVENT_READ)

    def serve(self) -> Sequence[str] | None:
        """Fork until there are no more orders.

        Returns:
            In a fork, the command that it is to run; else nothing.
        """
        while self._looks.get_map():
            for key, _ in self._looks.select():
                if key.data is not None:
                    self._tell(*key.data)
                elif (command := self._obey()) is not None:
                    return command
        return None

    def _obey(self) -> Sequence[str] | None:
        order, fds, _, _ = socket.recv_fds(self._orders, MAX_BYTES, 3)
        if not order:
            self._looks.unregister(self._orders)
            self._orders.close()
            return None
        asked_by, *outputs = fds
        client = socket.socket(fileno=asked_by)
        pid = os.fork()
        if pid == 0:
            client.close()
            return self._become(order, outputs)
        for each in outputs:
            os.close(each)
        client.send(str(pid).encode())
        ended = FileIO(os.pidfd_open(pid))
        self._looks.register(ended, selectors.EVENT_READ, (pid, ended, client))
        return None

    def _tell(self, pid: int, ended: FileIO, client: socket.socket) -> None:
        self._looks.unregister(ended)
        ended.close()
        _, status = os.waitpid(pid, 0)
        with client:
            client.send(str(os.waitstatus_to_exitcode(status)).encode())

    def _become(self, order: bytes, outputs: Sequence[int]) -> Sequence[str]:
        """Leave nothing of the process that this is a fork of but its modules."""
        for key in [*self._looks.get_map().values()]:
            for each in key.data[1:] if key.data is not None else [self._orders]:
                each.close()
        self._looks.close()
        for fd, stream in zip(outputs, (sys.stderr, sys.stdout), strict=False):
            os.dup2(fd, stream.fileno())
            os.close(fd)
        command, environ, cwd = json.loads(order)
        os.environ.clear()
        os.environ.update(environ)
        os.chdir(cwd)
        _be_called(command)
        _reseed()
        return [*command]


def _be_called(command: Sequence[str]) -> None:
    """Have ``/proc`` tell another command line: what holds a lock is known by it."""
    stat = Path("/proc/self/stat").read_text().rpartition(") ")[2].split()
    start, end = int(stat[45]), int(stat[46])
    words = b"\0".join(map(os.fsencode, command))
    assert len(words) < end - start
    ctypes.memmove(start, words.ljust(end - start, b"\0"), end - start)


def _reseed() -> None:
    """Have each daemon take its tasks in an order of its own."""
    trio_run: Any = import_module("trio._core._run")
    order: random.Random = trio_run._r
    order.seed()


def _preload(fd: int, modules: Sequence[str]) -> Sequence[str] | None:
    gc.disable()
    for module in modules:
        import_module(module)
    gc.freeze()
    gc.enable()
    return Forks(socket.socket(fileno=fd)).serve()


if __name__ == "__main__":
    command = _preload(int(sys.argv[1]), sys.argv[2:-1])
    if command is not None:
        sys.argv[1:] = command[len(COMMAND) :]
        runpy.run_module(PROGRAM, run_name="__main__", alter_sys=True)
