"""Start processes that serve the daemon, with nothing that takes long to import."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from io import FileIO
from typing import Final, NamedTuple, TypeAlias

from inferd.config import BackendSettings, LimitSettings
from inferd.ipc import Load
from inferd.limits import HEARTBEAT_S, HEARTBEATS_IN_SILENCE
from inferd.pipe import encode

LISTEN_VARIABLES: Final = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")
"""What systemd says of sockets to the daemon, and to nobody else."""

WORKER: Final = "inferd.worker"
PREPARER: Final = "inferd.worker.llama.preparer"
DECODER: Final = "inferd.decoder"
"""Modules that are run as processes of their own."""

Process: TypeAlias = subprocess.Popen[bytes]


class Spawned(NamedTuple):
    """A process that may still be on its way to become a worker."""

    popen: Process
    """It leads a group of its own; a worker's stderr is a pipe, and a preparer's stdout."""
    sock: socket.socket
    """Our end of its socketpair."""
    pidfd: FileIO
    """Readable once it has ended; had from the start, so that its end can be waited for
    where no descriptors are left."""
    is_told: bool = False
    """Whether it has been told what to load."""


def spawn(module: str = WORKER) -> Spawned:
    """Start a process.

    This thread does, not one of trio's: the kernel sends the process's parent-death signal
    when the *thread* that spawned it ends. It takes some 0.2 ms, whatever memory this process
    has, since it is not forked.

    It leads a group of its own, which ``kill`` ends; nothing in a worker's box can leave
    it. So a terminal's keys, and signals for the daemon's whole group, do not reach it.

    Args:
        module: ``WORKER``, or ``PREPARER`` or ``DECODER``, whose stderr nobody reads: it
            could quote prompts.

    Raises:
        OSError: there are too few descriptors or processes to be had; nothing is left of
            the attempt.
    """
    ours, theirs = socket.socketpair()
    with ExitStack() as on_failure, theirs:
        on_failure.enter_context(ours)
        popen = subprocess.Popen(  # noqa: S603  # our own module
            [
                *(sys.executable, "-P", "-m", module),
                *(str(theirs.fileno()), str(os.getpid())),
            ],
            pass_fds=(theirs.fileno(),),
            env={k: v for k, v in os.environ.items() if k not in LISTEN_VARIABLES},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if module == PREPARER else subprocess.DEVNULL,
            stderr=subprocess.PIPE if module == WORKER else subprocess.DEVNULL,
            process_group=0,
        )
        on_failure.callback(_end, popen)
        pidfd = FileIO(os.pidfd_open(popen.pid))
        on_failure.pop_all()
    return Spawned(popen, ours, pidfd)


def first_load(
    settings: BackendSettings, *, n_slots: int, limits: LimitSettings
) -> Load:
    """Say what a backend's worker is to load, before any has crashed."""
    heartbeat_s = min(HEARTBEAT_S, limits.worker_silence_s / HEARTBEATS_IN_SILENCE)
    return Load(settings=settings, n_slots=n_slots, heartbeat_s=heartbeat_s)


@contextmanager
def spawned_early(loads: Sequence[Load]) -> Iterator[Mapping[str, Spawned]]:
    """Start workers and tell them what to load, so that they import while we do.

    Gives those that are told so, by the names of their backends. They ask for memory, and
    load nothing before there is an answer. On leaving, they are killed and reaped. Where
    no process can be had, whoever starts it later hears why.
    """
    early: dict[str, Spawned] = {}
    with ExitStack() as cleanup:
        for load in loads:
            with suppress(OSError):
                spawned = spawn()
                cleanup.callback(end, spawned)
                spawned.sock.sendall(encode(load))
                early[load.settings.name] = spawned._replace(is_told=True)
        yield early


def end(spawned: Spawned) -> None:
    """Kill a process and reap it, unless that has happened."""
    with spawned.sock, closing(spawned.pidfd):
        _end(spawned.popen)


def _end(popen: Process) -> None:
    kill(popen)
    with popen:
        pass


def kill(popen: Process) -> None:
    """Send SIGKILL to a process and to all that it left in its group, unless it is reaped.

    Until then the number of the group can be nobody else's. Nothing is forked out of a
    group while the kernel kills it.
    """
    if popen.returncode is None:  # Popen's own kill would look, and reap it first
        os.killpg(popen.pid, signal.SIGKILL)
