"""What is known of models of the store: those that were read, that failed, that are read."""

from typing import NamedTuple

import trio

from inferd.backend.interface import Backend
from inferd.config.served import StoreModel, StoreView
from inferd.config.settings import ModelsSettings


class StoreLook(NamedTuple):
    """What a look has found that began at some time."""

    settings: ModelsSettings
    view: StoreView
    at: float


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
