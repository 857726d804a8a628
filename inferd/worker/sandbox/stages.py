"""The stages of a sandbox: to load, and then, with less, to serve.

What is given up is gone for this process and all that it starts. What the kernel does not
have is left out, and told.

The rule for accelerators: a backend that puts layers on one, ``n_gpu_layers`` other than
0, needs the devices, services and caches of its driver, so Landlock is left out and system
calls have a list of their own, which stays as it is while it serves.
"""

import os
from collections.abc import Iterable
from functools import partial

from inferd.config import BackendSettings, LlamaCppSettings
from inferd.ipc import Boxed
from inferd.sandbox.box import call_only, keep_to
from inferd.sandbox.bpf import Rules
from inferd.sandbox.privileges import drop_capabilities
from inferd.worker.backend import LoadError
from inferd.worker.sandbox import files
from inferd.worker.sandbox.closures import make_room_for_closures
from inferd.worker.sandbox.privileges import KEPT_CAPABILITIES
from inferd.worker.sandbox.profiles import (
    ACCELERATED,
    LOADING,
    PREPARING,
    SERVING,
    WRITING,
    with_signals_to,
)


class Sandbox:
    """Holds a worker in; first more loosely, to load."""

    def __init__(self) -> None:
        self._next: Rules | None = None

    def enter(
        self,
        settings: BackendSettings,
        models: Iterable[int] = (),
    ) -> Boxed:
        """Give up what loading this backend has no use for; one thread runs so far.

        Args:
            settings: of the backend.
            models: descriptors of the files that its library opens.
        """
        if isinstance(settings, LlamaCppSettings) and settings.n_gpu_layers:
            missing = call_only(_with_own_signals(ACCELERATED))
            return Boxed(is_open=True, seccomp=not missing, missing=missing)
        version, missing = _keep_to(models)
        refused = call_only(_with_own_signals(LOADING))
        if not refused:
            self._next = _with_own_signals(SERVING)
        return Boxed(
            landlock=version, seccomp=not refused, missing=(*missing, *refused)
        )

    def begin_serving(self) -> None:
        """Give up what only loading takes, on all threads; before a client is served.

        Raises:
            LoadError: the kernel refuses, though it did not before.
        """
        make_room_for_closures()
        if self._next is not None and (refused := call_only(self._next)):
            raise LoadError("the worker's sandbox cannot be closed", refused[0])


def enter_preparer() -> Boxed:
    """Give up what the process has no use for that prepares requests; one thread runs.

    It may fork, and read Python and its libraries. A fork calls ``begin_writing``.
    """
    version, missing = _keep_to(())
    refused = call_only(PREPARING)
    return Boxed(landlock=version, seccomp=not refused, missing=(*missing, *refused))


def begin_writing() -> None:
    """Give up, in a preparer's fork, what serving gives up, before it reads a request."""
    call_only(_with_own_signals(WRITING))


def _keep_to(models: Iterable[int]) -> tuple[int, tuple[str, ...]]:
    """Give up capabilities and files; give Landlock's version, and what is missing."""
    drop_capabilities(KEPT_CAPABILITIES)
    return keep_to(partial(files.restrict, models))


def _with_own_signals(rules: Rules) -> Rules:
    return with_signals_to(os.getpid(), rules)
