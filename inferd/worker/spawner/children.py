"""Fork a worker for each order, and tell of its end."""

import errno
import os
import selectors
import signal
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from inferd.ipc.spawner import (
    ENDS,
    MAX_ORDER_FDS,
    MAX_PACKET_BYTES,
    decode_number,
    encode_number,
)
from inferd.limits.worker import MAX_REMOTE_WORKERS

_FIRST_FD: Final = 3
"""The first descriptor after those of input, output and errors."""


class Start(NamedTuple):
    """What a fork is to run."""

    program: str
    arguments: Sequence[str]


class _Child(NamedTuple):
    pid: int
    answers: socket.socket


class Children:
    """The workers that were forked.

    Forks, and starts no program anew: so nobody can trace a worker at any moment, as nobody
    can trace this process.

    Args:
        orders: where the daemon's orders come from.
        programs: the modules that may be run.

    Bounds: ``MAX_REMOTE_WORKERS`` at once.
    """

    def __init__(self, orders: socket.socket, programs: Sequence[str]) -> None:
        self._orders = orders
        self._programs = programs
        self._selector = selectors.DefaultSelector()
        self._selector.register(orders, selectors.EVENT_READ)
        self._children: dict[int, _Child] = {}

    def serve(self) -> Start | None:
        """Fork and reap, until the daemon has closed its end.

        The kernel kills what was forked when this process ends.

        Returns:
            In a fork what it is to run; ``None`` at the end.
        """
        while True:
            for key, _ in self._selector.select():
                if key.fd in self._children:
                    self._reap(key.fd)
                    continue
                packet, fds, _, _ = socket.recv_fds(
                    self._orders, MAX_PACKET_BYTES, MAX_ORDER_FDS
                )
                if not packet:
                    return None
                if (start := self._obey(decode_number(packet), fds)) is not None:
                    return start

    def _obey(self, program: int | None, fds: list[int]) -> Start | None:
        """Fork; return in the fork what it is to run."""
        if not ENDS <= len(fds) <= MAX_ORDER_FDS:
            _close(fds)
            return None
        answers, parent = socket.socket(fileno=fds[0]), os.getpid()
        try:
            name = self._allowed(program)
            pid = os.fork()
            if pid == 0:
                answers.close()
                return self._become(name, fds[1:], parent)
            self._watch(pid, answers)
        except OSError as error:
            with answers, suppress(OSError):
                answers.send(encode_number(-(error.errno or errno.EIO)))
        _close(fds[1:])
        return None

    def _allowed(self, program: int | None) -> str:
        if program is None or not 0 <= program < len(self._programs):
            raise OSError(errno.ENOEXEC, "no such program")
        if len(self._children) >= MAX_REMOTE_WORKERS:
            raise OSError(errno.EAGAIN, "too many workers")
        return self._programs[program]

    def _watch(self, pid: int, answers: socket.socket) -> None:
        """Tell the daemon what was started, and note when it ends."""
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise
        self._children[pidfd] = _Child(pid, answers)
        self._selector.register(pidfd, selectors.EVENT_READ)
        with suppress(OSError):  # the daemon has gone: so will this process
            socket.send_fds(answers, [encode_number(pid)], [pidfd])

    def _reap(self, pidfd: int) -> None:
        child = self._children.pop(pidfd)
        self._selector.unregister(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(child.pid, 0)
        with child.answers, suppress(OSError):
            child.answers.send(encode_number(os.waitstatus_to_exitcode(status)))

    def _become(self, program: str, fds: Sequence[int], parent: int) -> Start:
        """Leave nothing of this process in a fork but its modules."""
        os.setpgid(0, 0)
        sock, stderr, *key = fds
        os.dup2(stderr, 2)
        self._selector.close()
        first = _FIRST_FD
        for fd in sorted((sock, *key)):
            os.closerange(first, fd)
            first = fd + 1
        os.closerange(first, os.sysconf("SC_OPEN_MAX"))
        return Start(program, [str(sock), str(parent), *map(str, key)])


def _close(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)
