"""Loading on demand: carry out what ``residency`` decides, for the requests that wait."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

import structlog
import trio

from inferd.backend.interface import StartFailedError
from inferd.config.settings import LimitSettings
from inferd.engine.supervisor.restart_policy import RestartDelay, RestartPolicy
from inferd.errors import BackendNotReadyError
from inferd.ipc.worker import Loading
from inferd.memory.plan import mib
from inferd.residency.residency import ModelState, Residency, TurnRules

log = structlog.get_logger("daemon")

OnLoading = Callable[[Loading], Awaitable[None]]
"""Tells the client of a request which phase the load has reached."""


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


class _NoObserver:
    def died(self, backend: str, reason: str, pause: RestartDelay) -> None:
        pass

    def unloaded(self, backend: str) -> None:
        pass


class LoadableEngine(Protocol):
    """The engine of a model that is loaded on demand."""

    on_loading: Callable[[Loading], None] | None

    @property
    def name(self) -> str:
        """The backend's name."""

    @property
    def unavailable(self) -> str | None:
        """Why it is out of service; ``None`` if it is not."""

    async def load(self, on_ready: Callable[[], None]) -> None:
        """Load the model and keep it until cancelled."""

    def detach(self) -> None:
        """Send no more jobs to the worker."""

    def load_failed(self, reason: str, *, is_out_of_service: bool) -> None:
        """Fail the jobs that wait."""

    def back_in_service(self) -> None:
        """Let the model be loaded again."""


class DemandModel:
    """A model that is loaded on demand, with its engine.

    Args:
        engine: loads it.
        keep_alive_s: seconds without a request until it is unloaded; 0 for never.
        limits: those of the circuit breaker.
    """

    def __init__(
        self, engine: LoadableEngine, keep_alive_s: float, limits: LimitSettings
    ) -> None:
        self.engine = engine
        self.keep_alive_s = keep_alive_s
        self.policy = RestartPolicy(
            breaker_deaths=limits.breaker_deaths, breaker_open_s=limits.breaker_open_s
        )
        self.scope = trio.CancelScope()
        engine.on_loading = self._note_phase
        self.phase: Loading | None = None
        """The phase of the load that is under way."""
        self.n_unloads = 0
        self.n_failures = 0
        self.failure = ""
        self._changed = trio.Event()

    async def wait_changed(self) -> None:
        """Wait until its state or phase changes."""
        await self._changed.wait()

    def _note_phase(self, loading: Loading) -> None:
        if loading != self.phase:
            self.phase = loading
            self.notify()

    def notify(self) -> None:
        """Wake all who wait for a change."""
        self._changed.set()
        self._changed = trio.Event()


@dataclass
class ModelLoader:
    """Loader of models on demand; without any, requests pass it at once.

    Args:
        models: by the names of their backends.
        rules: when models take turns.
        observer: told what happens.
    """

    models: dict[str, DemandModel] = field(default_factory=dict)
    rules: TurnRules = field(default_factory=TurnRules)
    observer: LoadObserver = field(default_factory=_NoObserver)
    _residency: Residency = field(init=False)
    _queue: Held | None = field(init=False, default=None)
    _nursery: trio.Nursery | None = field(init=False, default=None)
    _changed: trio.Event = field(init=False, default_factory=trio.Event)
    _closed: frozenset[str] = field(init=False, default=frozenset())

    def __post_init__(self) -> None:
        self._residency = Residency(0, self.rules)

    def add(
        self, engine: LoadableEngine, keep_alive_s: float, limits: LimitSettings
    ) -> None:
        """Add a model, before ``open``."""
        self.models[engine.name] = DemandModel(engine, keep_alive_s, limits)

    def open(self, budget: int, n_bytes: Callable[[str], int], queue: Held) -> None:
        """Begin with no model loaded, once it is known how much memory each takes.

        Args:
            budget: bytes for all of them.
            n_bytes: returns the planned bytes of a model.
            queue: of their requests.
        """
        self._queue = queue
        self._residency = Residency(budget, self.rules)
        for name, model in self.models.items():
            self._residency.add(
                name, n_bytes(name), keep_alive_s=model.keep_alive_s, is_pinned=False
            )
            queue.hold(name)
        self._closed = frozenset(self.models)

    async def run(self) -> None:
        """Load and unload until cancelled; then no model is loaded."""
        async with trio.open_nursery() as self._nursery:
            while True:
                with trio.CancelScope(deadline=self._decide()):
                    await self._changed.wait()

    # --- requests -----------------------------------------------------------------------

    def arrived(self, backend: str) -> None:
        """Note a request; if its model is not loaded, it will be."""
        if backend in self._residency:
            self._residency.arrived(backend, trio.current_time())
            self._changed.set()

    def started(self, backend: str) -> None:
        """Note that a request has a permit: its model stays until it has left."""
        if backend in self._residency:
            self._residency.started(backend)

    def left(
        self, backend: str, *, has_started: bool, keep_alive_s: float | None = None
    ) -> None:
        """Note the end of a request."""
        if backend in self._residency:
            self._residency.left(
                backend,
                trio.current_time(),
                has_started=has_started,
                keep_alive_s=keep_alive_s,
            )
            self._changed.set()

    async def wait_loaded(
        self, backend: str, on_loading: OnLoading | None = None
    ) -> None:
        """Wait until the model of a request is loaded; at once if it is.

        Args:
            backend: that will serve the request, which has arrived.
            on_loading: called with each phase of the load.

        Raises:
            BackendNotReadyError: it can never be loaded, or the load has failed.
        """
        if (model := self.models.get(backend)) is not None:
            await self._wait_ready(model, backend, on_loading)

    async def _wait_ready(
        self, model: DemandModel, backend: str, on_loading: OnLoading | None
    ) -> None:
        n_failures, phase = model.n_failures, None
        while self._residency.state(backend) is not ModelState.READY:
            if (reason := self._refusal(backend, model)) is not None:
                raise BackendNotReadyError(reason)
            if model.n_failures != n_failures:
                raise BackendNotReadyError(model.failure)
            if not self._residency.is_needed(backend):
                raise BackendNotReadyError("it was unloaded again meanwhile")
            if on_loading is not None and model.phase not in {None, phase}:
                phase = model.phase
                assert phase is not None  # noqa: S101  # compared above
                await on_loading(phase)
            else:
                await model.wait_changed()

    def _refusal(self, backend: str, model: DemandModel) -> str | None:
        """Say why a model cannot be loaded, whatever is unloaded for it."""
        needed = self._residency.bytes_needed(backend)
        most = self._residency.most_bytes(backend)
        if needed > most:
            return (
                f"the model needs {mib(needed)} of memory, and "
                f"{most // 2**20} MiB are left for models on demand"
            )
        return model.engine.unavailable

    def state(self, backend: str) -> ModelState | None:
        """Return the state of a model on demand; ``None`` for any other backend."""
        if backend not in self._residency:
            return None
        return self._residency.state(backend)

    async def load(self, backend: str) -> None:
        """Load a model although no request needs it; return once it is ready.

        Raises:
            BackendNotReadyError: it can never be loaded, the load has failed, or somebody
                has asked for the contrary.
        """
        self._residency.ask_load(backend, trio.current_time())
        self._changed.set()
        await self._wait_ready(self.models[backend], backend, None)

    async def unload(self, backend: str) -> None:
        """Unload a model once its requests have ended; return when that is done."""
        model = self.models[backend]
        n_unloads = model.n_unloads
        self._residency.ask_unload(backend, trio.current_time())
        self._changed.set()
        while model.n_unloads == n_unloads and not self._residency.is_absent(backend):
            await model.wait_changed()

    def notify(self) -> None:
        """Have all who wait look again: a backend was stopped."""
        for model in self.models.values():
            model.notify()

    # --- models -------------------------------------------------------------------------

    def _decide(self) -> float:
        """Do what is to be done now; return when to decide again."""
        self._changed = trio.Event()
        if self._nursery is None or self._queue is None:
            return float("inf")
        decision = self._residency.decide(trio.current_time())
        for name in decision.closed - self._closed:
            self._queue.hold(name)
        for name in decision.unloads:
            self.models[name].engine.detach()
            self.models[name].scope.cancel()
        for name in decision.loads:
            self._nursery.start_soon(self._keep_loaded, name, self.models[name])
        released, self._closed = self._closed - decision.closed, decision.closed
        for name in released:
            self._queue.release(name)
        return decision.at

    async def _keep_loaded(self, name: str, model: DemandModel) -> None:
        """Load a model, and keep it until its scope is cancelled."""
        began_at = trio.current_time()

        def on_ready() -> None:
            model.phase = None
            model.policy.died(had_served=True)
            self._residency.loaded(name, trio.current_time())
            self._tell(model)

        try:
            with trio.CancelScope() as model.scope:
                await model.engine.load(on_ready)
        except StartFailedError as error:
            self._load_failed(name, model, error)
            return
        finally:
            model.phase = None
        model.n_unloads += 1
        loaded_s = trio.current_time() - began_at
        log.info("worker.unloaded", backend=name, loaded_s=round(loaded_s, 3))
        self._residency.unloaded(name, trio.current_time())
        self.observer.unloaded(name)
        self._tell(model)

    def _load_failed(
        self, name: str, model: DemandModel, error: StartFailedError
    ) -> None:
        delay = model.policy.died(had_served=False)
        now = trio.current_time()
        self._residency.failed(name, now, retry_at=now + delay.seconds)
        model.n_failures += 1
        model.failure = error.reason
        model.engine.load_failed(error.reason, is_out_of_service=delay.breaker_is_open)
        self.observer.died(name, str(error), delay)
        self._tell(model)
        assert self._queue is not None  # noqa: S101  # nothing was loaded before
        assert self._nursery is not None  # noqa: S101  # it runs this
        self._queue.reject(name, error.reason)
        self._nursery.start_soon(self._recover, name, model, delay.seconds)

    async def _recover(self, name: str, model: DemandModel, seconds: float) -> None:
        """Let a model be loaded again after a while."""
        n_failures = model.n_failures
        await trio.sleep(seconds)
        if model.n_failures == n_failures:
            model.engine.back_in_service()
            self.observer.unloaded(name)

    def _tell(self, model: DemandModel) -> None:
        model.notify()
        self._changed.set()
