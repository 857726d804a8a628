"""A backend whose model is loaded on demand: an engine without a worker most of the time."""

from collections.abc import Callable
from functools import partial

import msgspec
import trio

from inferd.backend.capabilities import BackendCapabilities
from inferd.backend.interface import BackendState, StartFailedError
from inferd.config.settings import LimitSettings
from inferd.engine.channel.validator import SessionEndedError
from inferd.engine.engine import Engine
from inferd.engine.session import WorkerSession
from inferd.engine.supervisor.spawn import WorkerStart
from inferd.engine.trial_load import TrialLoad, trial_load
from inferd.errors import BackendNotReadyError
from inferd.ipc.worker import Loading
from inferd.memory.plan import InsufficientMemoryError, MemoryDemand, MemoryShare


def _ignore(_: Loading) -> None:
    pass


class DemandEngine(Engine):
    """An engine that reads the headers of its model first, and loads it when told to.

    Jobs that are sent to it while the model is not loaded wait for that.
    """

    on_loading: Callable[[Loading], None] | None = None
    """Called with each phase of a load."""
    find_state: Callable[[], BackendState] | None = None
    """Looks up the state of the model; who loads it sets this."""
    _n_failures = 0
    _failure = ""
    _demand: MemoryDemand | None = None

    @property
    def state(self) -> BackendState:
        """The state of the model, or of a worker that is being restarted."""
        state = super().state
        if state != "loading" or self.find_state is None:
            return state
        found = self.find_state()
        return "loading" if found == "ready" else found  # a worker is being restarted

    @property
    def limits(self) -> LimitSettings:
        """Timeouts, and the bounds of the circuit breaker."""
        return self._limits

    async def run(self, on_ready: Callable[[], None]) -> None:
        """Find out what the model can do and how much memory it takes; load nothing.

        Raises:
            StartFailedError: its file cannot be served.
        """
        await self.read_headers(partial(self._observer.loading, self.name))
        await self.plan_memory()
        self.announce()
        on_ready()
        await trio.sleep_forever()

    async def read_headers(
        self, on_loading: Callable[[Loading], None] = _ignore
    ) -> MemoryDemand | None:
        """Have a worker read the headers of the files; return its demand, if it has one.

        Args:
            on_loading: called with each phase.

        Raises:
            StartFailedError: a file cannot be served, or no worker can be started.
        """
        demands: list[MemoryDemand] = []
        try:
            trial = await self._read_headers(demands, on_loading)
        except SessionEndedError as error:
            raise self._start_failed(error) from error
        except OSError as error:  # out of descriptors, processes or memory
            reason = f"it cannot be started: {error.strerror}"
            text = f"backend {self.name}: {reason}"
            raise StartFailedError(text, reason=reason) from error
        if trial.sandbox_report is not None:
            self._sandbox_report = trial.sandbox_report
            self._observer.sandboxed(self.name, trial.sandbox_report)
        self._capabilities = trial.loaded.capabilities
        self._demand = demands[-1] if demands else None
        return self._demand

    async def plan_memory(self) -> None:
        """Find out how much memory the model gets, once its headers have been read.

        Raises:
            StartFailedError: there is not enough for it.
        """
        if self._demand is None:
            return
        try:
            share = await self._coordinator.request_share(self.key, self._demand)
        except InsufficientMemoryError as error:
            raise self._start_failed(error) from error
        self._capabilities = _with_share(self._capabilities, share)

    def announce(self) -> None:
        """Publish what the model can do."""
        self._observer.ready(self.name, self._capabilities)

    def _start_failed(
        self, error: SessionEndedError | InsufficientMemoryError
    ) -> StartFailedError:
        text = f"backend {self.name}: {error}"
        if isinstance(error, InsufficientMemoryError):
            return StartFailedError(text, reason=str(error))
        return StartFailedError(
            text, reason=error.reason, is_broken_file=error.is_broken_file
        )

    async def load(self, on_ready: Callable[[], None]) -> None:
        """Load the model and keep it loaded until cancelled; then its memory is free.

        Raises:
            StartFailedError: it could not be loaded.
        """
        self._out_of_service = None
        try:
            await super().run(on_ready)
        finally:
            self.detach()

    def load_failed(self, reason: str, *, is_out_of_service: bool) -> None:
        """Fail the jobs that wait for the model; later ones as well if it is out of service."""
        self._n_failures += 1
        self._failure = reason
        self._out_of_service = reason if is_out_of_service else None
        self._notify()

    def back_in_service(self) -> None:
        """End what ``load_failed`` has begun: the model may be loaded again."""
        self._out_of_service = None
        self._notify()

    def _report_loading(self, loading: Loading) -> None:
        if self.on_loading is not None:
            self.on_loading(loading)

    async def _read_headers(
        self, demands: list[MemoryDemand], on_loading: Callable[[Loading], None]
    ) -> TrialLoad:
        async def note(demand: MemoryDemand) -> MemoryShare:
            demands.append(demand)
            return MemoryShare(n_slots=self._load.n_slots, n_ctx=demand.n_ctx)

        outline = msgspec.structs.replace(self._load, is_outline=True)
        return await trial_load(
            WorkerStart(self._program, outline, credential=self._credential),
            note,
            silence_s=self._limits.load_silence_s,
            on_loading=on_loading,
        )

    async def _wait_ready(self) -> WorkerSession:
        n_failures = self._n_failures
        while self._session is None:
            if self.unavailable is not None:
                raise BackendNotReadyError(self.unavailable)
            if self._n_failures != n_failures:
                raise BackendNotReadyError(self._failure)
            await self._changed.wait()
        return self._session


def _with_share(
    capabilities: BackendCapabilities, share: MemoryShare
) -> BackendCapabilities:
    """Replace what depends on the memory that the model will get."""
    return msgspec.structs.replace(
        capabilities,
        n_ctx=share.n_ctx if capabilities.n_ctx else 0,
        n_slots=share.n_slots if capabilities.n_slots else 0,
    )
