"""The main function of the programs that are run as workers, one for each kind."""

import gc
import socket
import sys
from collections.abc import Callable, Iterable
from typing import TypeVar

from inferd.config.kinds.kind import BackendKind, InWorker
from inferd.config.settings import BackendSettings
from inferd.ipc.encoding import decode_settings
from inferd.ipc.worker import ReceivedLoad
from inferd.sandbox.pdeathsig import die_with_parent
from inferd.service.importing import without_collections
from inferd.worker.backend import WorkerBackend
from inferd.worker.channel import WorkerChannel
from inferd.worker.runtime import Runtime
from inferd.worker.sandbox import WorkerSandbox, drop_privileges

S = TypeVar("S", bound=BackendSettings)

EnterSandbox = Callable[[Iterable[int]], None]
"""Enters the sandbox, in which files may be opened anew by these descriptors alone."""
BackendMaker = Callable[[S, ReceivedLoad, EnterSandbox], WorkerBackend]
"""Makes the backend of a worker: opens the model's files, enters the sandbox, then imports
the library. Raises ``LoadError``."""


def run_worker(kind: BackendKind[S], make_backend: BackendMaker[S]) -> int:
    """Serve the daemon at the other end of the descriptor on the command line.

    Args:
        kind: whose program this is.
        make_backend: called once, with the settings that the daemon sends.

    Returns:
        The exit code.
    """
    fd, parent_pid = map(int, sys.argv[1:3])
    die_with_parent(parent_pid)
    drop_privileges()
    sandbox = WorkerSandbox()
    sys.setswitchinterval(
        0.0005
    )  # the decoding thread waits for the interpreter, not I/O
    with socket.socket(fileno=fd) as sock:
        channel = WorkerChannel(sock)

        def make(load: ReceivedLoad) -> WorkerBackend:
            settings = decode_settings(load, kind.settings)
            assert isinstance(kind.served_by, InWorker)  # noqa: S101  # this one
            policy = kind.served_by.sandbox(settings)
            with without_collections():
                backend = make_backend(
                    settings,
                    load,
                    lambda files: channel.send(sandbox.enter_loading(policy, files)),
                )
            gc.freeze()  # what was made stays: no collection need visit it
            return backend

        code = Runtime(channel, make, sandbox.enter_serving).serve()
    gc.freeze()  # or the interpreter visits all objects several times as it ends
    return code
