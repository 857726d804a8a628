"""Start child processes of the daemon; imports nothing that takes long to load."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from io import FileIO
from typing import Final, NamedTuple, TypeAlias

from inferd.config.kinds.kind import Credential
from inferd.config.settings import BackendSettings, LimitSettings
from inferd.engine.supervisor.keys import open_key, stash_keys
from inferd.engine.supervisor.spawner import OrderedProcess, spawner_for
from inferd.ipc.encoding import encode
from inferd.ipc.worker import Load
from inferd.limits.engine import HEARTBEAT_S, HEARTBEATS_IN_SILENCE
from inferd.service.activation import LISTEN_VARIABLES

PREPARER: Final = "inferd.worker.llama.prepare.fork_server"
DECODER: Final = "inferd.line_decoder"
"""Modules that are run as processes of their own, besides the programs of workers."""

_VARIABLES: Final = {"OPENBLAS_NUM_THREADS": "1"}
"""Of the processes, besides our own. The library of numpy's linear algebra, which none of them
uses, starts a thread for each core as numpy is imported, and each of these spins for some 90 ms
that others could use."""

Process: TypeAlias = subprocess.Popen[bytes] | OrderedProcess


class WorkerStart(NamedTuple):
    """What a worker is started with."""

    program: str
    """The module that is run as the process."""
    load: Load
    """Its first message."""
    key: str = ""
    """Tells its backend from one of the same name; by default the name."""
    credential: Credential | None = None
    """The key that the process gets."""


class SpawnedProcess(NamedTuple):
    """A child process with its socket, which may still be starting up."""

    popen: Process
    """The leader of its own process group; a worker's stderr is a pipe, and so is a
    preparer's stdout."""
    sock: socket.socket
    """The daemon's end of its socketpair."""
    pidfd: FileIO
    """Readable once the process has exited; opened at the start, so that the exit can be
    awaited even when the daemon is out of descriptors. For an ``OrderedProcess`` it is where
    the exit code comes."""
    load_sent: bool = False
    """Whether the worker has been sent its ``Load`` message."""


def spawn(
    module: str,
    *,
    keeps_stderr: bool = False,
    credential: Credential | None = None,
) -> SpawnedProcess:
    """Start a process.

    Spawns from the calling thread, not one of trio's: the kernel sends the process's
    parent-death signal when the *thread* that spawned it ends. It takes some 0.2 ms,
    however much memory the daemon has, since the daemon is not forked.

    The process leads its own group, which ``kill`` ends; nothing in a worker's sandbox can
    leave it. So neither a terminal's keys nor signals for the daemon's group reach it.

    A worker with a network is started by another process, if this one has given its network
    up, in some 2 ms.

    Args:
        module: the program of a worker, ``PREPARER`` or ``DECODER``.
        keeps_stderr: for workers; that of the others is discarded: it could quote prompts.
        credential: the key that it gets, as one descriptor more; that is left out if there is
            no such key.

    Raises:
        OSError: out of descriptors or processes, or the key cannot be opened; nothing is left
            of the attempt.
    """
    ours, theirs = socket.socketpair()
    with ExitStack() as on_failure, theirs, ExitStack() as opened:
        on_failure.enter_context(ours)
        passed = [theirs.fileno()]
        if (key := open_key(credential)) is not None:
            opened.callback(os.close, key)
            passed.append(key)
        if (spawner := spawner_for(module)) is not None:
            ordered = spawner.start(module, theirs, key)
            on_failure.pop_all()
            return SpawnedProcess(ordered, ours, ordered.ended)
        # with ``DEVNULL`` Python 3.11.2 leaves it open where descriptors run out
        null = opened.enter_context(FileIO(os.devnull, "r+"))
        popen = subprocess.Popen(  # noqa: S603  # our own module
            [
                *(sys.executable, "-P", "-m", module),
                *(str(theirs.fileno()), str(os.getpid()), *map(str, passed[1:])),
            ],
            pass_fds=passed,
            env=_environment(),
            stdin=null,
            stdout=subprocess.PIPE if module == PREPARER else null,
            stderr=subprocess.PIPE if keeps_stderr else null,
            process_group=0,
        )
        on_failure.callback(_end, popen)
        pidfd = FileIO(os.pidfd_open(popen.pid))
        on_failure.pop_all()
    return SpawnedProcess(popen, ours, pidfd)


def _environment() -> dict[str, str]:
    """Return the environment of a process that is started."""
    ours = {k: v for k, v in os.environ.items() if k not in LISTEN_VARIABLES}
    return ours | _VARIABLES


def first_start(
    program: str,
    settings: BackendSettings,
    *,
    n_slots: int,
    limits: LimitSettings,
    credential: Credential | None = None,
) -> WorkerStart:
    """Make the start of a backend's worker before any of its workers has crashed."""
    heartbeat_s = min(HEARTBEAT_S, limits.worker_silence_s / HEARTBEATS_IN_SILENCE)
    load = Load(settings=settings, n_slots=n_slots, heartbeat_s=heartbeat_s)
    return WorkerStart(program, load, credential=credential)


@contextmanager
def prespawn_workers(
    starts: Sequence[WorkerStart],
) -> Iterator[Mapping[str, SpawnedProcess]]:
    """Start workers and send them ``Load``, so that they import while the daemon starts.

    Yields those that were sent the message, by the names of their backends. They ask for
    memory, and load nothing before the reply. On leaving, they are killed and reaped. A
    process that cannot be started is skipped; the later start reports why. So is one that
    another process starts.
    """
    spawned_workers: dict[str, SpawnedProcess] = {}
    with ExitStack() as cleanup:
        with suppress(OSError):  # a later start reports it
            stash_keys(each.credential for each in starts)
        for program, load, _, credential in starts:
            if spawner_for(program) is not None:
                continue  # it starts at once, but not before that process has
            with suppress(OSError):
                spawned = spawn(program, keeps_stderr=True, credential=credential)
                cleanup.callback(kill_and_reap, spawned)
                spawned.sock.sendall(encode(load))
                spawned_workers[load.settings.name] = spawned._replace(load_sent=True)
        yield spawned_workers


def kill_and_reap(spawned: SpawnedProcess) -> None:
    """Kill a process and reap it, if it was not reaped before."""
    with spawned.sock, closing(spawned.pidfd):
        _end(spawned.popen)


def _end(popen: Process) -> None:
    kill(popen)
    with popen:
        popen.wait()


def kill(popen: Process) -> None:
    """Send SIGKILL to a process and the rest of its group, unless it is reaped.

    Until it is reaped, its group's number cannot be reused. Nothing is forked out of a
    group while the kernel kills it.
    """
    if isinstance(popen, OrderedProcess):
        popen.kill()
    elif popen.returncode is None:  # Popen.kill would poll, and so reap it
        os.killpg(popen.pid, signal.SIGKILL)
