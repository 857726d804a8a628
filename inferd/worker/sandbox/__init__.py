"""The sandbox of workers, entered before any native code of a library runs.

Seccomp lists the allowed system calls: more while a worker loads, few while it serves;
Landlock lists the files. ``python -m inferd.worker.sandbox SCRIPT`` runs a script in the
sandbox of a serving worker.

This has the lists and their stages; the mechanism that installs them is the package
``inferd.sandbox``.
"""

from inferd.worker.sandbox.stages import (
    WorkerSandbox,
    drop_privileges,
    enter_preparing,
    enter_rendering,
)

__all__ = ["WorkerSandbox", "drop_privileges", "enter_preparing", "enter_rendering"]
