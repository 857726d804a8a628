"""Backends that answer in the daemon's process, made by the module of their kind."""

from importlib import import_module
from typing import Protocol

from inferd.backend.capabilities import BackendCapabilities
from inferd.backend.interface import Backend
from inferd.config.kinds.kind import InDaemon
from inferd.config.settings import BackendSettings


class ReadyObserver(Protocol):
    """Receiver of the news that a backend is ready."""

    def ready(self, backend: str, capabilities: BackendCapabilities) -> None:
        """The backend is ready, for the first time or again."""


class BackendModule(Protocol):
    """A module that makes the backends of one kind."""

    def make_backend(
        self, settings: BackendSettings, observer: ReadyObserver, /
    ) -> Backend:
        """Make a backend; it tells the observer whenever it gets ready."""


def make_in_daemon(
    kind: InDaemon, settings: BackendSettings, observer: ReadyObserver
) -> Backend:
    """Import the module of a kind, and have it make a backend."""
    module: BackendModule = import_module(kind.module)
    return module.make_backend(settings, observer)
