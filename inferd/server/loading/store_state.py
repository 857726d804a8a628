"""What is known of models of the store (read, failed, being read), and where that is from."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

import trio

from inferd.backend.interface import Backend
from inferd.config.served import StoreModel, StoreView
from inferd.config.settings import BackendSettings, ModelsSettings
from inferd.ipc.worker import Loading
from inferd.limits.residency import MAX_HEADER_READS, MAX_OPENED_MODELS

Look = Callable[[ModelsSettings, StoreView], Awaitable[StoreView]]
"""Looks at the store, in a thread; given what was found before with the same settings."""


class Backends(Protocol):
    """The backends that serve, to which those of the store are added."""

    async def add(
        self,
        settings: BackendSettings,
        on_broken: Callable[[str], None],
        on_loading: Callable[[Loading], None],
    ) -> Backend:
        """Read a header and add a backend; raises ``StartFailedError``."""

    def remove(self, backend: Backend) -> None:
        """Remove it; the requests that have arrived for it are served."""

    def is_idle(self, backend: Backend) -> bool:
        """Return whether it takes no memory and nobody has asked for it."""

    def __contains__(self, backend: Backend) -> bool:
        """Return whether it serves."""


def n_store_workers(models: ModelsSettings) -> int:
    """Return the most workers that models of the store have at once."""
    serve = models.serve
    if not serve:
        return 0
    n_models = MAX_OPENED_MODELS if isinstance(serve, bool) else len(serve)
    return n_models + MAX_HEADER_READS


class StoreBackend(NamedTuple):
    """A model whose header has been read."""

    backend: Backend
    model: StoreModel


class ModelFailure(NamedTuple):
    """Why a model cannot be served."""

    reason: str
    text: str
    """The same for the operator."""
    model: StoreModel
    retry_at: float


class HeaderRead:
    """A header that is being read, and the requests that wait for it."""

    def __init__(self) -> None:
        self.n_waiting = 0
        self.users: set[int] = set()
        """Those who wait for their turn to have it read; the first turn is used."""
        self.has_begun = False
        self.reason = ""
        """Why it cannot be read."""
        self.is_over = trio.Event()
