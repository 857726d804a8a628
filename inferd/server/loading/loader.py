"""The loader: it loads and unloads models as ``residency`` decides."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import structlog
import trio

from inferd.backend.interface import Backend, StartFailedError
from inferd.config.settings import LimitSettings
from inferd.errors import BackendNotReadyError
from inferd.residency.residency import ModelState, Residency, TurnRules
from inferd.server.loading.model import (
    REMOVED,
    DemandModel,
    Held,
    LoadableEngine,
    LoadObserver,
    NoObserver,
    OnLoading,
    ResidentEngine,
    lack_of,
)

log = structlog.get_logger("daemon")

Keys = Collection[str]


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
    observer: LoadObserver = field(default_factory=NoObserver)
    forget: Callable[[str], None] = lambda _: None
    """Called with the key of each model that has been removed."""
    _residents: dict[str, ResidentEngine] = field(init=False, default_factory=dict)
    _scopes: dict[str, trio.CancelScope] = field(init=False, default_factory=dict)
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
        self._know(DemandModel(engine, keep_alive_s, limits))

    def _state_of(self, backend: str) -> ModelState:
        """Return the state of a model, also before ``open``."""
        if backend not in self._residency:
            return ModelState.UNLOADED
        return self._residency.state(backend)

    def _know(self, model: DemandModel) -> None:
        key = model.engine.key
        self.models[key] = model
        model.engine.find_state = lambda: self._state_of(key).value

    def add_resident(self, engine: ResidentEngine) -> None:
        """Add a model that ``keep_resident`` loads at the start, before ``open``."""
        self._residents[engine.key] = engine
        self._scopes[engine.key] = trio.CancelScope()

    def open(self, budget: int, n_bytes: Callable[[str], int], queue: Held) -> None:
        """Begin with no model loaded, once it is known how much memory each takes.

        ``n_bytes`` returns the planned ones of a model.
        """
        self._queue = queue
        self._residency = Residency(budget, self.rules)
        for name, model in self.models.items():
            self._residency.add(name, n_bytes(name), keep_alive_s=model.keep_alive_s)
            queue.hold(name)
        for name in self._residents:
            self._residency.add(name, n_bytes(name), keep_alive_s=0, is_pinned=True)
            self._residency.adopt(name, trio.current_time())
        self._closed = frozenset(self.models)

    async def keep_resident(
        self, engine: Backend, on_ready: Callable[[], None]
    ) -> None:
        """Run a backend until it is retired; then its memory is free.

        Raises:
            StartFailedError: it did not get ready.
        """
        with self._scopes.get(engine.key, trio.CancelScope()):
            await engine.run(on_ready)
        if engine.key in self._residents:
            log.info("worker.unloaded", backend=engine.name)
            self.observer.unloaded(engine.name)
            self._residency.unloaded(engine.key, trio.current_time())
            self._changed.set()

    # --- changes of the configuration ---------------------------------------------------

    def begin(self, model: DemandModel, n_bytes: int) -> None:
        """Add a model that is not loaded while others are served."""
        assert self._queue is not None  # noqa: S101  # open() has set it
        key = model.engine.key
        self._know(model)
        self._residency.add(key, n_bytes, keep_alive_s=model.keep_alive_s)
        self._queue.hold(key)
        self._closed |= {key}

    def pin(self, backend: str) -> None:
        """Load a model that ``begin`` has added, and keep it loaded."""
        self.models[backend].is_on_demand = False
        self._residency.pin(backend)
        self._changed.set()
        self._review_room()

    def _review_room(self) -> None:
        """Refuse the requests for models that have no room beside the pinned any more."""
        assert self._queue is not None  # noqa: S101  # open() has set it
        for name, model in self.models.items():
            lack = self.lack(name)
            if lack is None and model.has_no_room:
                model.engine.back_in_service()
            elif lack is not None and model.engine.unavailable is None:
                model.note_failure(lack)
                model.engine.load_failed(lack, is_out_of_service=True)
                self._tell(model)
                self._queue.reject(name, lack)
            model.has_no_room = lack is not None

    def retire(self, backend: str) -> None:
        """Remove a model once the requests that have arrived for it have ended."""
        if backend in self._residency:
            self._residency.retire(backend)
            self._review_room()
            self._changed.set()
            if (model := self.models.get(backend)) is not None:
                model.notify()  # who waits for a load that was ordered waits in vain

    def knows(self, backend: str) -> bool:
        """Return whether a backend is one whose model can be loaded and unloaded."""
        return backend in self._residency

    def is_loaded(self, backend: str) -> bool:
        """Return whether a model takes memory."""
        return backend in self._residency and not self._residency.is_absent(backend)

    def fits(self, backend: str, beside: Keys = (), without: Keys = ()) -> bool:
        """Return whether a model can be loaded beside some, without others, as they stay."""
        return self._residency.fits(backend, beside=beside, without=without)

    def reserve(self, backend: str, n_bytes: int) -> bool:
        """Change how much memory a model takes; false if there is not so much.

        A load of it that is under way is given up, and begins again once there is.
        """
        if backend not in self._residency or self._residency.resize(backend, n_bytes):
            return True
        if (model := self.models.get(backend)) is not None:
            model.outgrown_bytes = n_bytes
        return False

    def is_idle(self, backend: str) -> bool:
        """Return whether a model takes no memory, and nobody has asked for it."""
        return not self.is_loaded(backend) and not self._residency.is_needed(backend)

    def stop(self, reason: str) -> None:
        """Fail all jobs of all models, also of those that are being replaced."""
        for engine in self._residents.values():
            engine.stop(reason)
        for model in self.models.values():
            model.engine.stop(reason)
            model.notify()

    def _remove(self, backend: str) -> None:
        if (model := self.models.pop(backend, None)) is not None:
            model.notify()
        self._residents.pop(backend, None)
        self._scopes.pop(backend, None)
        assert self._queue is not None  # noqa: S101  # open() has set it
        self._queue.release(backend)
        self.forget(backend)

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
        self,
        backend: str,
        *,
        has_started: bool,
        user: int,
        keep_alive_s: float | None = None,
    ) -> None:
        """Note the end of a request."""
        if backend in self._residency:
            self._residency.left(
                backend,
                trio.current_time(),
                has_started=has_started,
                user=user,
                keep_alive_s=keep_alive_s,
            )
            self._changed.set()

    async def wait_loaded(
        self, backend: str, on_loading: OnLoading | None = None
    ) -> None:
        """Wait until the model of a request that has arrived is loaded.

        ``on_loading`` is called with each phase of the load.

        Raises:
            BackendNotReadyError: it can never be loaded, or the load has failed.
        """
        if (model := self.models.get(backend)) is not None:
            await self._wait_ready(model, backend, on_loading)

    async def _wait_ready(
        self, model: DemandModel, backend: str, on_loading: OnLoading | None
    ) -> None:
        n_failures, phase = model.n_failures, None
        while self._state_of(backend) is not ModelState.READY:
            if backend not in self._residency:
                raise BackendNotReadyError(REMOVED)
            if reason := self.lack(backend) or model.engine.unavailable:
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

    def lack(self, backend: str) -> str | None:
        """Say how much memory a model lacks even if all others that can be are unloaded."""
        needed = self._residency.bytes_needed(backend)
        most = self._residency.most_bytes(backend)
        return lack_of(needed, most) if needed > most else None

    def state(self, backend: str) -> ModelState | None:
        """Return the state of a model on demand; ``None`` for any other backend."""
        if backend not in self.models or not self.models[backend].is_on_demand:
            return None
        return self._residency.state(backend)

    async def load(self, backend: str) -> None:
        """Load a model although no request needs it; return once it is ready.

        Raises:
            BackendNotReadyError: it can never be loaded, the load has failed, or somebody
                has asked for the contrary.
        """
        self._residency.ask_load(backend, trio.current_time())
        self._tell(self.models[backend])
        await self._wait_ready(self.models[backend], backend, None)

    async def unload(self, backend: str) -> None:
        """Unload a model once its requests have ended; return when that is done.

        Raises:
            BackendNotReadyError: somebody has asked for the contrary.
        """
        model = self.models[backend]
        n_unloads = model.n_unloads
        self._residency.ask_unload(backend, trio.current_time())
        self._tell(model)
        while model.n_unloads == n_unloads and self.is_loaded(backend):
            if not self._residency.is_leaving(backend):
                raise BackendNotReadyError("it is to be loaded again meanwhile")
            await model.wait_changed()

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
            self._end(name)
        for name in decision.loads:
            self._nursery.start_soon(self._keep_loaded, name, self.models[name])
        released, self._closed = self._closed - decision.closed, decision.closed
        for name in released:
            self._queue.release(name)
        for name in decision.removed:
            self._remove(name)
        return decision.at

    def _end(self, name: str) -> None:
        """End the worker of a model that runs no request."""
        if (model := self.models.get(name)) is not None:
            model.engine.detach()
            model.scope.cancel()
        else:
            self._residents[name].detach()
            self._scopes[name].cancel()

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
            self._not_loaded(model, error)
            return
        finally:
            model.phase = None
        model.n_unloads += 1
        shown, loaded_s = model.engine.name, trio.current_time() - began_at
        log.info("worker.unloaded", backend=shown, loaded_s=round(loaded_s, 3))
        self._residency.unloaded(name, trio.current_time())
        self.observer.unloaded(shown)
        self._tell(model)

    def _not_loaded(self, model: DemandModel, error: StartFailedError) -> None:
        """Have a model wait for more memory if it takes more than was predicted, or fail."""
        name = model.engine.key
        if (n_bytes := model.outgrown_bytes) is None:
            self._load_failed(name, model, error)
            return
        model.outgrown_bytes = None
        log.info("model.outgrown", backend=model.engine.name, n_bytes=n_bytes)
        self._residency.unloaded(name, trio.current_time())
        self._residency.resize(name, n_bytes)
        self._review_room()
        self._tell(model)

    def _load_failed(
        self, name: str, model: DemandModel, error: StartFailedError
    ) -> None:
        delay = model.policy.died(had_served=False)
        now = trio.current_time()
        self._residency.failed(name, now, retry_at=now + delay.seconds)
        model.note_failure(error.reason)
        model.engine.load_failed(error.reason, is_out_of_service=delay.breaker_is_open)
        self.observer.died(model.engine.name, str(error), delay)
        self._tell(model)
        assert self._queue is not None  # noqa: S101  # nothing was loaded before
        assert self._nursery is not None  # noqa: S101  # it runs this
        self._queue.reject(name, error.reason)
        self._nursery.start_soon(self._recover, model, delay.seconds)
        if error.is_broken_file:
            model.on_broken(error.reason)

    async def _recover(self, model: DemandModel, seconds: float) -> None:
        """Let a model be loaded again after a while."""
        n_failures = model.n_failures
        await trio.sleep(seconds)
        if model.n_failures == n_failures:
            model.engine.back_in_service()
            self.observer.unloaded(model.engine.name)

    def _tell(self, model: DemandModel) -> None:
        model.notify()
        self._changed.set()
