"""The stages of the sandbox: loading, and then, with fewer permissions, serving.

Restrictions are irreversible and inherited by child processes. Features that the kernel
lacks are skipped and reported.

A backend that computes on an accelerator needs the devices, services and caches of its
driver, so Landlock is skipped and a separate list of system calls applies, which stays the
same while it serves.
"""

import ctypes
import os
import resource
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Final

from inferd.config.kinds.kind import Sandbox
from inferd.ipc.worker import SandboxReport
from inferd.limits.worker import WORKER_OPEN_FILES
from inferd.sandbox.bpf import SyscallRules
from inferd.sandbox.privileges import drop_capabilities, set_no_new_privs
from inferd.sandbox.restrict import restrict_files, restrict_syscalls
from inferd.worker.backend import LoadError
from inferd.worker.sandbox import landlock_paths
from inferd.worker.sandbox.profiles import (
    ACCELERATED,
    LOADING,
    PREPARING,
    REMOTE,
    RENDERING,
    SERVING,
    allow_own_signals,
)

KEPT_CAPABILITIES: Final = 1 << 2
"""``CAP_DAC_READ_SEARCH``: read files whatever their modes. Landlock limits which ones."""


def drop_privileges() -> None:
    """Set ``no_new_privs``, disable core files, and limit open files."""
    set_no_new_privs()
    for kind, limit in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, WORKER_OPEN_FILES),
    ):
        _, hard = resource.getrlimit(kind)
        value = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        with suppress(OSError):  # a seccomp filter around this process
            resource.setrlimit(kind, (value, value))


_CLOSURES: Final[list[Callable[[], None]]] = []


def reserve_closure_page() -> None:
    """Make libffi map a page for closures, and keep a closure so that it stays mapped.

    A page holds a hundred, and a thread uses at most three in its calls of libraries.
    """
    _CLOSURES.append(ctypes.CFUNCTYPE(None)(_nothing))


def _nothing() -> None:
    """Do nothing; never called."""


class WorkerSandbox:
    """The sandbox of a worker in its two stages."""

    def __init__(self) -> None:
        self._next: SyscallRules | None = None

    def enter_loading(
        self,
        policy: Sandbox,
        models: Iterable[int] = (),
    ) -> SandboxReport:
        """Restrict this process to loading a backend; it has one thread so far.

        Args:
            policy: which sandbox the backend needs.
            models: descriptors of the files that its library opens.
        """
        if policy is Sandbox.ACCELERATED:
            missing = restrict_syscalls(_with_own_signals(ACCELERATED))
            return SandboxReport(
                files_unrestricted=True, seccomp=not missing, missing=missing
            )
        version, missing = _restrict_files(models)
        refused = restrict_syscalls(_with_own_signals(LOADING))
        if not refused:
            self._next = _with_own_signals(SERVING)
        return SandboxReport(
            landlock=version, seccomp=not refused, missing=(*missing, *refused)
        )

    def enter_remote(self, port: int) -> SandboxReport:
        """Restrict this process to connections; it has one thread so far.

        Args:
            port: to which TCP connections may be made; 0 for none.
        """
        drop_capabilities()
        ports = (port,) if port else ()
        version, missing = restrict_files(
            partial(landlock_paths.restrict_to_paths, (), ports)
        )
        refused = restrict_syscalls(_with_own_signals(REMOTE))
        return SandboxReport(
            landlock=version, seccomp=not refused, missing=(*missing, *refused)
        )

    def enter_serving(self) -> None:
        """Restrict all threads to serving, before a client is served.

        Raises:
            LoadError: the kernel refuses, though it did not before.
        """
        reserve_closure_page()
        if self._next is not None and (refused := restrict_syscalls(self._next)):
            raise LoadError("the worker's sandbox cannot be tightened", refused[0])


def enter_preparing() -> SandboxReport:
    """Restrict the process that prepares requests, while it has one thread.

    It may fork, and read Python and its libraries. A fork calls ``enter_rendering``.
    """
    version, missing = _restrict_files(())
    refused = restrict_syscalls(PREPARING)
    return SandboxReport(
        landlock=version, seccomp=not refused, missing=(*missing, *refused)
    )


def enter_rendering() -> None:
    """Restrict a preparer's fork before it reads a request."""
    restrict_syscalls(_with_own_signals(RENDERING))


def _restrict_files(models: Iterable[int]) -> tuple[int, tuple[str, ...]]:
    """Drop capabilities and restrict files; return Landlock's version and missing parts."""
    drop_capabilities(KEPT_CAPABILITIES)
    return restrict_files(partial(landlock_paths.restrict_to_paths, models))


def _with_own_signals(rules: SyscallRules) -> SyscallRules:
    return allow_own_signals(os.getpid(), rules)
