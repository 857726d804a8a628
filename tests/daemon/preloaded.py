"""Start daemons, and bridges and doctors, as forks of a process that has imported what they need.

Nine tenths of the processor time of a daemon that starts and ends are its imports, and tests
start hundreds. What is forked has run nothing of the daemon's; in a fork `inferd` runs from
its command line on, in a process of its own, with the environment, directory and stderr that
it is given.

The workers and preparers of such a daemon are forks, too: `forked_workers.py`.

What this leaves out is the interpreter's own start. `test_activation.py`, `test_readme.py`,
`test_cli.py` but for most doctors, `test_log.py` and all that set variables of Python's start the command itself.
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
FORKS: Final = ("inferd-forks",)
"""What the process is called that workers of one daemon are forks of."""
COMMAND: Final = (sys.executable, "-m", PROGRAM)
DAEMON: Final = (
    *("inferd.cli.commands.serve", "inferd.app", "tests.daemon.forked_workers"),
)
"""What the daemon imports before it does anything of its own."""
BRIDGE: Final = (
    *("inferd.cli.commands.bridge", "inferd.bridge.http.listen"),
    "inferd.bridge.serve",
)
"""And what the bridge does."""
DOCTOR: Final = ("inferd.cli.commands.doctor",)
"""And what the doctor does."""

CLIENTS: Final = (
    *("inferd.cli.commands.generate", "inferd.cli.commands.transcribe"),
    *("inferd.cli.commands.status", "inferd.cli.commands.reload"),
)
"""And what commands do that ask a daemon."""

MAX_BYTES: Final = 1 << 17
"""Bytes of one order: a command line and an environment."""

ROOM: Final = "-" * 4096
"""The last argument of the process that forks: room for the command line of a fork."""

ROOM_VARIABLE: Final = "INFERD_TEST_ROOM"
"""The variable of that process with room for the environment of a fork."""

READ_AT_START: Final = ("PYTHON", "LD_", "LC_", "LANG", "MALLOC_", "GLIBC_", "TZ")
"""How variables begin that only the start of a process, or of the interpreter, reads."""

ROOT: Final = Path(__file__).parents[2]


# --- in a process of tests --------------------------------------------------------------


class ForkedProcess:
    """A process that another one than ours is the parent of, as `subprocess.Popen` is."""

    def __init__(
        self, pid: int, ended: socket.socket, forks: "ForkedProcess | None" = None
    ) -> None:
        self.pid = pid
        self._forks = forks
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
        if self.returncode is None and _is_readable(self._ended, timeout_s):
            self.returncode = int(self._ended.recv(MAX_BYTES))
            self._ended.close()
            if self._forks is not None:
                self._forks.wait()
        return self.returncode


def _is_readable(peer: socket.socket, timeout_s: float | None) -> bool:
    """Wait for data or the end; `select` takes no descriptor of 1,024 and more."""
    look = select.poll()
    look.register(peer, select.POLLIN)
    return bool(look.poll(None if timeout_s is None else timeout_s * 1_000))


class Preloaded:
    """The process that programs are forks of; it ends with ours.

    Args:
        environ: its environment.
        modules: that it imports.
        workers: the process that workers of daemons are forks of; without one, daemons
            start them as ever.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        modules: Sequence[str],
        workers: "Preloaded | None" = None,
    ) -> None:
        self._workers = workers
        self._read = read_at_start(environ)
        self._orders, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.daemon.preloaded"),
                    *(str(theirs.fileno()), *modules, ROOM),
                ],
                env={**environ, ROOM_VARIABLE: ROOM},
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self._end)

    def fits(self, environ: Mapping[str, str]) -> bool:
        """Tell whether a fork can be as a process that starts with this environment."""
        return read_at_start(environ) == self._read

    def start(
        self,
        command: Sequence[str],
        environ: Mapping[str, str],
        stderr: int,
        stdout: int | None = None,
        cwd: Path | None = None,
    ) -> ForkedProcess:
        """Start what a command starts, one of ``COMMAND``, in such an environment.

        Args:
            command: its command line.
            environ: its environment, one that ``fits``.
            stderr: descriptor of its stderr.
            stdout: and of its stdout; without one, what it prints is lost.
            cwd: its directory; by default ours.
        """
        outputs = [stderr, *([] if stdout is None else [stdout])]
        order = [[*command], {**environ}, os.fspath(cwd or Path.cwd())]
        if self._workers is None:
            return self._fork(order, outputs)
        of_daemon, of_forks = socket.socketpair(type=socket.SOCK_SEQPACKET)
        with of_daemon, of_forks:
            theirs = [[*FORKS], *order[1:]]
            forks = self._workers._fork(theirs, [stderr], of_forks.fileno())
            return self._fork(order, outputs, of_daemon.fileno(), forks)

    def _fork(
        self,
        order: Sequence[object],
        outputs: Sequence[int],
        orders: int | None = None,
        forks: ForkedProcess | None = None,
    ) -> ForkedProcess:
        message = json.dumps([*order, orders is not None]).encode()
        ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        with theirs:
            fds = [theirs.fileno(), *([] if orders is None else [orders]), *outputs]
            socket.send_fds(self._orders, [message], fds)
        return ForkedProcess(int(ours.recv(MAX_BYTES)), ours, forks)

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


def read_at_start(environ: Mapping[str, str]) -> dict[str, str]:
    """Give the variables that a process reads when it starts."""
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
        self.orders_of_workers: int | None = None
        """In a fork, the socket that a daemon orders its workers at, or its other end."""
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
        order, fds, _, _ = socket.recv_fds(self._orders, MAX_BYTES, 4)
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
        command, environ, cwd, has_orders = json.loads(order)
        if has_orders:
            self.orders_of_workers, *outputs = outputs
        for fd, stream in zip(outputs, (sys.stderr, sys.stdout), strict=False):
            os.dup2(fd, stream.fileno())
            os.close(fd)
        stdout: Any = sys.stdout
        stdout.reconfigure(line_buffering=stdout.isatty())
        os.environ.clear()
        os.environ.update(environ)
        os.chdir(cwd)
        be_called(command, {})
        _reseed()
        return [*command]


def be_called(command: Sequence[str], environ: Mapping[str, str]) -> None:
    """Have ``/proc`` tell another command line: what holds a lock is known by it.

    Args:
        command: that command line.
        environ: what ``/proc`` tells of the environment.
    """
    stat = Path("/proc/self/stat").read_text().rpartition(") ")[2].split()
    variables = [f"{name}={value}" for name, value in environ.items()]
    _overwrite(int(stat[45]), int(stat[46]), command)
    _overwrite(int(stat[47]), int(stat[48]), variables)


def _overwrite(start: int, end: int, words: Sequence[str]) -> None:
    written = b"\0".join(map(os.fsencode, words))
    assert len(written) < end - start
    ctypes.memmove(start, written.ljust(end - start, b"\0"), end - start)


def _reseed() -> None:
    """Have each daemon take its tasks in an order of its own.

    A process that forks workers has not imported trio, and importing it takes longer than all
    else that a test's daemon does.
    """
    trio_run: Any = sys.modules.get("trio._core._run")
    if trio_run is not None:
        order: random.Random = trio_run._r
        order.seed()


def _preload(fd: int, modules: Sequence[str]) -> Sequence[str] | None:
    gc.disable()
    for module in modules:
        import_module(module)
    gc.freeze()
    gc.enable()
    forks = Forks(socket.socket(fileno=fd))
    command = forks.serve()
    if forks.orders_of_workers is not None:
        forked_workers: Any = import_module("tests.daemon.forked_workers")
        if command == [*FORKS]:
            return [*forked_workers.serve(forks.orders_of_workers)]
        forked_workers.fork_workers(forks.orders_of_workers)
    return command


def _run(program: str, arguments: Sequence[str]) -> None:
    """Run a program as ``python -m`` does."""
    for name in (program, f"{program}.__main__"):
        if not hasattr(sys.modules.get(name), "__path__"):
            sys.modules.pop(name, None)
    sys.argv[1:] = arguments
    runpy.run_module(program, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    command = _preload(int(sys.argv[1]), sys.argv[2:-1])
    if command is not None:
        after = command.index("-m") + 1
        if "-P" in command:
            del sys.path[0]
        _run(command[after], command[after + 1 :])
