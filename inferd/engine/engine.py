"""A backend that is a worker process, kept alive."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

import msgspec
import trio

from inferd.backend import StartFailedError
from inferd.capabilities import BackendCapabilities
from inferd.config import LimitSettings
from inferd.engine.conduct import SessionOverError
from inferd.engine.jobs import JobBackend
from inferd.engine.ledger import Ledger
from inferd.engine.preparer import Preparer
from inferd.engine.process import KILLED_BY, WorkerProcess, start_worker
from inferd.engine.restart import Pause, RestartPolicy
from inferd.engine.session import Session
from inferd.engine.spawn import Spawned
from inferd.engine.stepdown import StepDown
from inferd.errors import (
    BackendNotReadyError,
)
from inferd.fit import UnfitError
from inferd.ipc import (
    Boxed,
    Load,
    Loading,
    Variant,
)


class Observer(Protocol):
    """Who wants to know how a worker fares."""

    def loading(self, backend: str, loading: Loading) -> None:
        """It is on its way to ready."""

    def boxed(self, backend: str, boxed: Boxed) -> None:
        """It has given up what it has no use for, unlike the ones before."""

    def ready(self, backend: str, capabilities: BackendCapabilities) -> None:
        """It serves."""

    def died(self, backend: str, reason: str, pause: Pause) -> None:
        """It is gone, and comes back after the pause."""

    def stepped_down(
        self, backend: str, reason: str, *, crashed: str, lower: str
    ) -> None:
        """It crashed with one variant of its CPU code, and comes back with a lower one."""


class _Death(NamedTuple):
    """How a worker's life ended."""

    reason: str
    """For clients."""
    whole_reason: str
    """For the operator: with the library's own last words."""
    was_ready: bool
    had_served: bool
    variant: Variant | None
    """Of the library's CPU code, as far as it is known."""


class Engine(JobBackend):
    """One configured backend: a worker, and another one when that dies.

    The first of them may have been started, and told what to load, before.
    """

    def __init__(
        self,
        load: Load,
        *,
        limits: LimitSettings,
        ledger: Ledger,
        observer: Observer,
        early: Spawned | None = None,
    ) -> None:
        super().__init__(prepare_timeout_s=limits.prepare_timeout_s)
        self._step_down = StepDown()
        self._load = load
        self._early = early
        self._limits = limits
        self._ledger = ledger
        self._observer = observer
        self._capabilities = BackendCapabilities()
        self._boxed: Boxed | None = None
        self._out_of_service: str | None = None
        self._stopped: str | None = None
        self._changed = trio.Event()

    @property
    def name(self) -> str:
        """Its configured name."""
        return self._load.settings.name

    @property
    def ready(self) -> bool:
        """Whether a worker serves."""
        return self._session is not None

    @property
    def unavailable(self) -> str | None:
        """Why it was stopped, or its breaker is open."""
        return self._stopped or self._out_of_service

    @property
    def capabilities(self) -> BackendCapabilities:
        """What the last worker said it can do."""
        return self._capabilities

    def stop(self, reason: str) -> None:
        """Fail every job, now and later; the worker itself ends with ``run``."""
        session, self._session = self._session, None
        self._stopped = reason
        if session:
            session.fail_all(reason)
        self._tell()

    # --- the worker's life ----------------------------------------------------------

    async def run(self, on_ready: Callable[[], None]) -> None:
        """Keep a worker alive until cancelled; then it is killed and reaped.

        Raises:
            StartFailedError: the first one did not get ready.
        """
        policy = RestartPolicy(
            breaker_deaths=self._limits.breaker_deaths,
            breaker_open_s=self._limits.breaker_open_s,
        )
        death = await self._live(on_ready)
        if not death.was_ready:
            hint = "; run: inferd doctor" if death.reason.startswith(KILLED_BY) else ""
            raise StartFailedError(f"backend {self.name}: {death.whole_reason}{hint}")
        while True:
            pause = policy.died(had_served=death.had_served)
            self._out_of_service = death.reason if pause.breaker_is_open else None
            self._observer.died(self.name, death.whole_reason, pause)
            self._tell()
            await trio.sleep(pause.seconds)
            death = await self._live(_nothing)

    async def _live(self, on_ready: Callable[[], None]) -> _Death:
        """Have a worker serve until it is gone, with a variant that gets that far."""
        while True:
            death = await self._live_once(on_ready)
            if death.variant is None or death.was_ready:
                return death
            before = self._step_down.crashed
            lower = self._step_down.died(death.reason, death.variant)
            if lower:
                self._observer.stepped_down(
                    self.name,
                    death.whole_reason,
                    crashed=death.variant.name,
                    lower=lower,
                )
            elif before and not self._step_down.crashed:
                names = ", ".join((*before, death.variant.name))
                return death._replace(
                    whole_reason=f"{death.whole_reason} (with each of {names})"
                )
            else:
                return death

    async def _live_once(self, on_ready: Callable[[], None]) -> _Death:
        """Start a worker and serve with it until it is gone."""
        early, self._early = self._early, None
        try:
            async with start_worker(early) as process:
                return await self._serve_with(process, on_ready)
        except OSError as error:
            # Of the start alone: what is raised beside a running worker comes in a group.
            reason = f"it cannot be started: {error.strerror}"
            return _Death(
                reason=reason,
                whole_reason=reason,
                was_ready=False,
                had_served=False,
                variant=None,
            )

    async def _serve_with(
        self, process: WorkerProcess, on_ready: Callable[[], None]
    ) -> _Death:
        """Serve with a worker until it is gone."""
        session = Session(process)
        was_ready = False
        try:
            await self._get_ready(session)
            was_ready = True
            self._step_down.proved(session.variant)
            on_ready()
            await session.serve(silence_s=self._limits.worker_silence_s)
        except SessionOverError as error:
            self._session = None
            session.fail_all(f"the worker is gone: {error.reason}")
            return _Death(
                reason=error.reason,
                whole_reason=str(error),
                was_ready=was_ready,
                had_served=session.has_served,
                variant=session.variant,
            )
        except UnfitError as error:
            return _Death(
                reason=str(error),
                whole_reason=str(error),
                was_ready=was_ready,
                had_served=False,
                variant=None,
            )
        finally:
            if session.preparer is not None:
                await session.preparer.aclose()

    async def _get_ready(self, session: Session) -> None:
        loaded = await session.load(
            msgspec.structs.replace(self._load, crashed=self._step_down.crashed),
            lambda loading: self._observer.loading(self.name, loading),
            partial(self._ledger.allot, self.name),
            silence_s=self._limits.load_silence_s,
        )
        if session.boxed is not None and session.boxed != self._boxed:
            self._boxed = session.boxed
            self._observer.boxed(self.name, session.boxed)
        self._capabilities = loaded.capabilities
        self._marker_tokens = loaded.marker_tokens
        if self._stopped is not None:
            return
        if loaded.facts:
            session.preparer = Preparer(
                loaded.facts,
                session.vocabulary.get,
                start_timeout_s=self._limits.prepare_timeout_s,
            )
        self._session = session
        self._out_of_service = None
        self._observer.ready(self.name, loaded.capabilities)
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def _wait_ready(self) -> Session:
        while self._session is None:
            if self.unavailable is not None:
                raise BackendNotReadyError(self.unavailable)
            await self._changed.wait()
        return self._session


def _nothing() -> None:
    """Do nothing."""
