"""Start workers and preparers of daemons as forks of a process that has imported their modules.

Each daemon has a process of its own that forks them, and ends with the daemon: so the kernel
kills them then, as it kills those that a daemon starts itself. They are reaped when the
daemon asks for it. A library that runs models is imported after the fork, in the sandbox.
"""

import json
import os
import resource
import selectors
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from importlib import import_module
from io import FileIO
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any, Final, Self

from tests.daemon.preloaded import MAX_BYTES, be_called, read_at_start

MODULES: Final = (
    *(
        "tests.daemon.forked_workers",
        "numpy",
        "numpy.typing",
        "jinja2",
        "jinja2.sandbox",
        "llguidance",
        "diskcache",
    ),
    *("inferd.worker.mock.__main__", "inferd.worker.llama.__main__"),
    *("inferd.worker.llama.prepare.fork_server", "inferd.worker.whisper.__main__"),
)
"""What it has imported; it is told by ``OPENBLAS_NUM_THREADS`` to have one thread."""

PROGRAMS: Final = (
    *("inferd.worker.mock", "inferd.worker.llama", "inferd.worker.whisper"),
    *("inferd.worker.llama.prepare.fork_server", "tests.fakes.kinds.shout"),
)
"""What it starts; all others are started as users' daemons start them."""

CHANGE: Final = "INFERD_TEST_CHANGE"
"""The variable of a daemon that names what each of its forks calls before its program.

It is ``module:function``, of a function that changes values of modules in that fork.
"""

LIMITS: Final = (
    *(resource.RLIMIT_AS, resource.RLIMIT_CORE, resource.RLIMIT_CPU),
    *(resource.RLIMIT_DATA, resource.RLIMIT_FSIZE, resource.RLIMIT_MEMLOCK),
    *(resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC, resource.RLIMIT_STACK),
)
"""Limits that a child inherits."""


# --- in a daemon --------------------------------------------------------------------------


class ForkedChild:
    """What `subprocess.Popen` is to a daemon.

    Args:
        pid: of the process.
        end: where its exit code is asked for.
        outputs: the daemon's ends of its stdout and its stderr.
    """

    def __init__(
        self,
        pid: int,
        end: socket.socket,
        outputs: tuple[FileIO | None, FileIO | None],
    ) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdout, self.stderr = outputs
        self._end = end

    def wait(self) -> int:
        """Wait for its end and have it reaped; give the exit code."""
        if self.returncode is None:
            with self._end:
                self._end.send(b"?")
                self.returncode = int(self._end.recv(MAX_BYTES))
        return self.returncode

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for each in (self.stdout, self.stderr):
            if each is not None:
                each.close()
        self.wait()


class ForkedChildren:
    """Starts a daemon's children.

    Args:
        orders: the socket of the process that forks them.
    """

    def __init__(self, orders: socket.socket) -> None:
        self._orders = orders
        self._read = read_at_start(os.environ)

    def start(
        self,
        command: Sequence[str],
        *,
        pass_fds: Sequence[int],
        env: Mapping[str, str],
        **options: Any,
    ) -> "ForkedChild | subprocess.Popen[bytes]":
        """Start a child, with the arguments of `subprocess.Popen` that daemons give."""
        program = command[list(command).index("-m") + 1]
        if program not in PROGRAMS or read_at_start(env) != self._read:
            return subprocess.Popen(command, pass_fds=pass_fds, env=env, **options)
        limits = [resource.getrlimit(each) for each in LIMITS]
        order = json.dumps(
            [[*command], {**env}, os.fspath(Path.cwd()), limits]
        ).encode()
        with ExitStack() as theirs, ExitStack() as on_failure:
            outputs = [
                _pipe(options[name], theirs, on_failure)
                for name in ("stdout", "stderr")
            ]
            end, far_end = socket.socketpair(type=socket.SOCK_SEQPACKET)
            theirs.enter_context(far_end)
            on_failure.enter_context(end)
            fds = [far_end.fileno(), pass_fds[0], *(each for _, each in outputs)]
            socket.send_fds(self._orders, [order], fds)
            pid = int(end.recv(MAX_BYTES))
            on_failure.pop_all()
        return ForkedChild(pid, end, (outputs[0][0], outputs[1][0]))


def _pipe(
    option: int, theirs: ExitStack, on_failure: ExitStack
) -> tuple[FileIO | None, int]:
    if option == subprocess.DEVNULL:
        far_end = theirs.enter_context(FileIO(os.devnull, "w"))
        return None, far_end.fileno()
    ours, fd = os.pipe()
    far_end = theirs.enter_context(FileIO(fd, "w"))
    return on_failure.enter_context(FileIO(ours)), far_end.fileno()


def fork_workers(orders: int) -> None:
    """Have the daemon of this process order its children of another one."""
    start: Any = ForkedChildren(socket.socket(fileno=orders)).start
    spawn: Any = import_module("inferd.engine.supervisor.spawn")
    spawn.subprocess = SimpleNamespace(
        Popen=start, PIPE=subprocess.PIPE, DEVNULL=subprocess.DEVNULL
    )


# --- in the process that forks them -------------------------------------------------------


class Children:
    """Forks the children of one daemon, and ends with it.

    Args:
        orders: where they come from.
    """

    def __init__(self, orders: socket.socket) -> None:
        self._orders = orders
        self._looks = selectors.DefaultSelector()
        self._looks.register(orders, selectors.EVENT_READ)

    def serve(self) -> Sequence[str]:
        """Fork and reap as the daemon asks, to its end.

        Returns:
            In a fork, the command that it is to run.
        """
        while True:
            for key, _ in self._looks.select():
                if key.data is not None:
                    self._reap(key.fileobj, key.data)
                elif (command := self._obey()) is not None:
                    return command

    def _reap(self, end: Any, pid: int) -> None:
        self._looks.unregister(end)
        with closing(end):
            if end.recv(MAX_BYTES):
                _, status = os.waitpid(pid, 0)
                end.send(str(os.waitstatus_to_exitcode(status)).encode())

    def _obey(self) -> Sequence[str] | None:
        order, fds, _, _ = socket.recv_fds(self._orders, MAX_BYTES, 4)
        if not order:
            os._exit(0)  # the kernel kills the children
        end = socket.socket(fileno=fds[0])
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            end.close()
            return self._become(order, fds[1:], parent)
        os.setpgid(pid, pid)
        for each in fds[1:]:
            os.close(each)
        end.send(str(pid).encode())
        self._looks.register(end, selectors.EVENT_READ, pid)
        return None

    def _become(self, order: bytes, fds: list[int], parent: int) -> Sequence[str]:
        """Leave nothing of the process that this is a fork of but its modules."""
        for key in [*self._looks.get_map().values()]:
            each: Any = key.fileobj
            each.close()
        self._looks.close()
        os.setpgid(0, 0)
        sock, *outputs = fds
        for number, fd in enumerate(outputs, 1):
            os.dup2(fd, number)
            os.close(fd)
        command, environ, cwd, limits = json.loads(order)
        command[-2:] = [str(sock), str(parent)]
        os.environ.clear()
        os.environ.update(environ)
        os.chdir(cwd)
        for limit, bounds in zip(LIMITS, limits, strict=True):
            resource.setrlimit(limit, bounds)
        be_called(command, environ)
        if change := environ.get(CHANGE):
            module, _, function = change.partition(":")
            getattr(import_module(module), function)()
        return [*command]


def serve(orders: int) -> Sequence[str]:
    """Fork the children of one daemon; return in a fork, with its command."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's key is for the daemon
    return Children(socket.socket(fileno=orders)).serve()
