"""The main function of the process that starts workers with a network."""

import gc
import runpy
import signal
import socket
import sys
from importlib import import_module

from inferd.ipc.spawner import READY
from inferd.sandbox.pdeathsig import die_with_parent
from inferd.sandbox.privileges import refuse_inspection
from inferd.worker.sandbox import drop_privileges
from inferd.worker.spawner.children import Children

_SHARED = (
    *("inferd.worker.remote.program", "inferd.worker.remote.service"),
    "inferd.worker.remote.http.exchange",
)
"""Modules that all of the workers import, and that need an extra."""


def main() -> None:
    """Start workers as the daemon orders, to its end.

    In a worker, this returns when its program has ended.
    """
    refuse_inspection()
    fd, parent_pid = map(int, sys.argv[1:3])
    programs = tuple(sys.argv[3:])
    die_with_parent(parent_pid)
    drop_privileges()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    orders = socket.socket(fileno=fd)
    orders.send(READY)
    for name in _SHARED:
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("inferd"):
                raise
            # one of the extra: a worker reports it
    gc.freeze()  # a fork writes to what a collection visits
    start = Children(orders, programs).serve()
    if start is not None:
        sys.argv[:] = [start.program, *start.arguments]
        runpy.run_module(start.program, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
