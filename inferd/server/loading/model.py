"""A model that is loaded on demand, its engine, and the load that is under way."""

from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import trio

from inferd.backend.interface import BackendState
from inferd.config.settings import LimitSettings
from inferd.engine.supervisor.restart_policy import RestartDelay, RestartPolicy
from inferd.ipc.worker import Loading
from inferd.memory.plan import mib

REMOVED: Final = "it was removed from the configuration meanwhile"

OnLoading = Callable[[Loading], Awaitable[None]]
"""Tells the client of a request which phase the load has reached."""


class ResidentEngine(Protocol):
    """The engine of a model that was loaded at the start, and stays."""

    @property
    def name(self) -> str:
        """The backend's name."""

    @property
    def key(self) -> str:
        """What tells it from one of the same name."""

    @property
    def unavailable(self) -> str | None:
        """Why it is out of service; ``None`` if it is not."""

    def detach(self) -> None:
        """Send no more jobs to the worker."""

    def stop(self, reason: str) -> None:
        """Fail all jobs, current and later."""


class LoadableEngine(ResidentEngine, Protocol):
    """The engine of a model that is loaded on demand."""

    on_loading: Callable[[Loading], None] | None
    find_state: Callable[[], BackendState] | None

    async def load(self, on_ready: Callable[[], None]) -> None:
        """Load the model and keep it until cancelled."""

    def load_failed(self, reason: str, *, is_out_of_service: bool) -> None:
        """Fail the jobs that wait."""

    def back_in_service(self) -> None:
        """Let the model be loaded again."""


class Held(Protocol):
    """The queue, whose requests for a model that is not ready are held back."""

    def hold(self, backend: str) -> None:
        """Grant no permits to new requests for a backend."""

    def release(self, backend: str) -> None:
        """End ``hold``."""

    def reject(self, backend: str, reason: str) -> None:
        """Reject the waiting requests for a backend."""


class LoadObserver(Protocol):
    """Receiver of what happens to models, for the status."""

    def died(self, backend: str, reason: str, pause: RestartDelay) -> None:
        """A worker has ended, or a load failed."""

    def unloaded(self, backend: str) -> None:
        """A model is not loaded, as intended."""

    def removed(self, backend: str) -> None:
        """A backend is not served any more."""


class NoObserver:
    """A receiver that ignores everything."""

    def died(self, backend: str, reason: str, pause: RestartDelay) -> None:
        """Ignore it."""

    def unloaded(self, backend: str) -> None:
        """Ignore it."""

    def removed(self, backend: str) -> None:
        """Ignore it."""


class DemandModel:
    """A model that is loaded on demand, with its engine.

    Args:
        engine: loads it.
        keep_alive_s: seconds without a request until it is unloaded; 0 for never.
        limits: those of the circuit breaker.
    """

    def __init__(
        self,
        engine: LoadableEngine,
        keep_alive_s: float,
        limits: LimitSettings,
    ) -> None:
        self.engine = engine
        self.is_on_demand = True
        """Whether it is to be unloaded when it is not used."""
        self.keep_alive_s = keep_alive_s
        self.policy = RestartPolicy(
            breaker_deaths=limits.breaker_deaths, breaker_open_s=limits.breaker_open_s
        )
        self.scope = trio.CancelScope()
        engine.on_loading = self._note_phase
        self.phase: Loading | None = None
        """The phase of the load that is under way."""
        self.has_no_room = False
        """Whether it does not fit beside those that stay loaded."""
        self.outgrown_bytes: int | None = None
        """What the load that is under way would take, if there is not so much memory."""
        self.n_unloads = 0
        self.n_failures = 0
        self.failure = ""
        self.on_broken: Callable[[str], None] = lambda _: None
        """Called with the reason when its file turns out to be broken."""
        self._changed = trio.Event()

    async def wait_changed(self) -> None:
        """Wait until its state or phase changes."""
        await self._changed.wait()

    def _note_phase(self, loading: Loading) -> None:
        if loading != self.phase:
            self.phase = loading
            self.notify()

    def note_failure(self, reason: str) -> None:
        """Note that a load has failed."""
        self.n_failures += 1
        self.failure = reason

    def notify(self) -> None:
        """Wake all who wait for a change."""
        self._changed.set()
        self._changed = trio.Event()


def lack_of(n_bytes: int, most_bytes: int) -> str:
    """Say that a model does not fit, with the numbers."""
    return (
        f"the model needs {mib(n_bytes)} of memory, and "
        f"{most_bytes // 2**20} MiB are left for models on demand"
    )
