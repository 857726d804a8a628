"""Order workers with a network of the process that may start them.

The daemon gives up its own network, so what it starts has none. Without such a process, which
is without remote backends, workers are started as all others are.
"""

import errno
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from io import FileIO
from types import TracebackType
from typing import Final, Self

from inferd.config.kinds.kind import InWorker
from inferd.config.kinds.registry import KindRegistry
from inferd.config.kinds.remote import RemoteSettings
from inferd.config.settings import BackendSettings
from inferd.ipc.spawner import MAX_PACKET_BYTES, READY, decode_number, encode_number
from inferd.limits.engine import SPAWNER_ANSWER_S, SPAWNER_START_S
from inferd.sandbox.network import give_up_network, has_network

SPAWNER: Final = "inferd.worker.spawner"
"""The module that is run as the process."""

ASKED_BY: Final = "INFERD_GIVE_UP_NETWORK"
"""The variable with which ``remote.conf`` tells the daemon that the unit has a network, which
the daemon must give up whether or not it has remote backends."""

_PASSED: Final = (
    *("PATH", "HOME", "LANG", "LANGUAGE", "TZ", "VIRTUAL_ENV"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "OPENSSL_CONF"),
    *("RES_OPTIONS", "LOCALDOMAIN", "HOSTALIASES"),
)
_PASSED_PREFIXES: Final = ("LC_", "LD_", "PYTHON")
"""Variables that it gets: those of Python, of TLS and of the resolver. Others could be keys."""

_GONE: Final = (
    "the process that starts workers of remote engines has ended; restart the daemon"
)
_NO_START: Final = "the process that starts workers of remote engines cannot be started"


class OrderedProcess:
    """A worker that another process has started, as ``subprocess.Popen`` describes one.

    Args:
        pid: its process id.
        pidfd: a descriptor of it.
        ended: where its exit code comes; readable once it has been reaped.
        stderr: the daemon's end of its stderr.
    """

    stdout: FileIO | None = None

    def __init__(self, pid: int, pidfd: FileIO, ended: FileIO, stderr: FileIO) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stderr = stderr
        self.ended = ended
        self._pidfd = pidfd

    def kill(self) -> None:
        """Send SIGKILL; it has no processes of its own."""
        if self.returncode is None:
            try:
                signal.pidfd_send_signal(self._pidfd.fileno(), signal.SIGKILL)
            except ProcessLookupError:
                return  # it has been reaped

    def wait(self) -> int:
        """Wait until it has been reaped; return the exit code as ``Popen`` does."""
        if self.returncode is None:
            code = decode_number(os.read(self.ended.fileno(), MAX_PACKET_BYTES))
            # it dies with the process that started it
            self.returncode = -signal.SIGKILL if code is None else code
        return self.returncode

    def __enter__(self) -> Self:
        """Do nothing."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Wait, and close what belongs to it but ``ended``."""
        self.stderr.close()
        self.wait()
        self._pidfd.close()


class Spawner:
    """The process that starts workers with a network.

    Args:
        programs: that it may start.
        orders: the socket for orders.
    """

    def __init__(self, programs: Sequence[str], orders: socket.socket) -> None:
        self._programs = programs
        self._orders = orders

    def can_start(self, program: str) -> bool:
        """Tell whether a program is one of those that need a network."""
        return program in self._programs

    def start(
        self, program: str, sock: socket.socket, key: int | None
    ) -> OrderedProcess:
        """Start a worker.

        Args:
            program: its module.
            sock: its end of its socket pair.
            key: a descriptor of its key.

        Raises:
            OSError: it cannot be started; nothing is left of the attempt.
        """
        with ExitStack() as on_failure, ExitStack() as theirs:
            ours, far = socket.socketpair(type=socket.SOCK_SEQPACKET)
            on_failure.enter_context(ours)
            theirs.enter_context(far)
            stderr, far_stderr = (FileIO(fd, mode) for fd, mode in _pipe())
            on_failure.enter_context(stderr)
            theirs.enter_context(far_stderr)
            fds = [far.fileno(), sock.fileno(), far_stderr.fileno()]
            packet = encode_number(self._programs.index(program))
            try:
                socket.send_fds(
                    self._orders, [packet], fds if key is None else [*fds, key]
                )
            except OSError:
                raise OSError(errno.ECHILD, _GONE) from None
            theirs.close()
            pid, pidfd = _answer(ours)
            on_failure.pop_all()
        ours.settimeout(None)
        return OrderedProcess(pid, pidfd, FileIO(ours.detach(), "r"), stderr)

    def find_fault(self) -> str:
        """Wait until nobody can trace it; return why that cannot be, or an empty string."""
        try:
            is_ready = self._orders.recv(MAX_PACKET_BYTES) == READY
        except OSError:
            is_ready = False
        return "" if is_ready else _NO_START


def _pipe() -> tuple[tuple[int, str], tuple[int, str]]:
    ours, theirs = os.pipe()
    return (ours, "r"), (theirs, "w")


def _answer(ours: socket.socket) -> tuple[int, FileIO]:
    """Receive the process id and a descriptor of what was started."""
    ours.settimeout(SPAWNER_ANSWER_S)
    try:
        packet, fds, _, _ = socket.recv_fds(ours, MAX_PACKET_BYTES, 1)
    except TimeoutError:
        text = "the process that starts workers of remote engines does not answer"
        raise OSError(errno.ETIMEDOUT, text) from None
    pidfds = [FileIO(fd) for fd in fds]
    pid = decode_number(packet)
    if pid is None:
        raise OSError(errno.ECHILD, _GONE)
    if pid < 0 or not pidfds:
        raise OSError(-pid, os.strerror(-pid))
    return pid, pidfds[0]


_current: list[Spawner] = []
"""The one of this daemon, if it has one."""


def spawner_for(program: str) -> Spawner | None:
    """Return the process that is to start a program, unless this one does."""
    return next((each for each in _current if each.can_start(program)), None)


def has_remote(backends: Iterable[BackendSettings]) -> bool:
    """Tell whether a backend is a remote one."""
    return any(isinstance(each, RemoteSettings) for each in backends)


@contextmanager
def without_network(
    kinds: KindRegistry, *, has_remotes: bool, environ: Mapping[str, str]
) -> Iterator[Callable[[], str]]:
    """Give up this process's network, and start the process that keeps one.

    Nothing is given up if there is no network, or nothing asks for that. On leaving, the
    process and all that it started is killed; the network stays given up.

    Args:
        kinds: whose programs with a network it may start.
        has_remotes: whether there are remote backends.
        environ: of this process.

    Yields:
        What waits until clients may be listened to, and returns why they may not be, or an
        empty string.
    """
    is_asked = ASKED_BY in environ
    if not (is_asked or has_remotes) or not has_network():
        yield str
        return
    with ExitStack() as stack:
        try:
            spawner = stack.enter_context(_process(_programs(kinds), environ))
        except OSError as error:
            text = f"{_NO_START}: {error.strerror}"
            yield lambda: text
            return
        if (missing := give_up_network()) and is_asked:
            text = f"the daemon cannot give up its network: {missing}"
            yield lambda: text
            return
        _current.append(spawner)
        stack.callback(_current.remove, spawner)
        yield spawner.find_fault


def _programs(kinds: KindRegistry) -> list[str]:
    return [
        kind.served_by.program
        for kind in kinds.kinds
        if isinstance(kind.served_by, InWorker)
        and issubclass(kind.settings, RemoteSettings)
    ]


@contextmanager
def _process(programs: Sequence[str], environ: Mapping[str, str]) -> Iterator[Spawner]:
    ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
    with closing(ours):
        with closing(theirs):
            popen = subprocess.Popen(  # noqa: S603  # our own module
                [
                    *(sys.executable, "-P", "-m", SPAWNER),
                    *(str(theirs.fileno()), str(os.getpid()), *programs),
                ],
                pass_fds=[theirs.fileno()],
                env={
                    name: value
                    for name, value in environ.items()
                    if name in _PASSED or name.startswith(_PASSED_PREFIXES)
                },
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                process_group=0,
            )
        try:
            ours.settimeout(SPAWNER_START_S)
            yield Spawner(programs, ours)
        finally:
            popen.kill()
            popen.wait()
