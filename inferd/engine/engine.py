"""A backend that is a supervised worker process."""

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, Protocol

import msgspec
import trio

from inferd.backend.capabilities import BackendCapabilities
from inferd.backend.interface import StartFailedError
from inferd.config.settings import LimitSettings
from inferd.engine.channel.validator import SessionEndedError
from inferd.engine.prepare.preparer import Preparer
from inferd.engine.session import WorkerSession
from inferd.engine.session_backend import SessionBackend
from inferd.engine.supervisor.process import KILLED_BY, WorkerProcess, start_worker
from inferd.engine.supervisor.restart_policy import RestartDelay, RestartPolicy
from inferd.engine.supervisor.spawn import SpawnedProcess, WorkerStart
from inferd.engine.supervisor.variant_fallback import VariantFallback
from inferd.errors import (
    BackendNotReadyError,
)
from inferd.ipc.worker import (
    Availability,
    CpuVariant,
    Loading,
    SandboxReport,
)
from inferd.limits.engine import CHANGED_FILE_LOADS
from inferd.memory.coordinator import MemoryCoordinator
from inferd.memory.plan import InsufficientMemoryError

UNLOADED: Final = "the model was unloaded"
"""Never sent to a client: its job is prepared again once the model is loaded."""


class WorkerObserver(Protocol):
    """Receiver of the lifecycle events of workers."""

    def loading(self, backend: str, loading: Loading) -> None:
        """The worker is loading its model."""

    def sandboxed(self, backend: str, report: SandboxReport) -> None:
        """The worker is sandboxed, and not as the worker before it was."""

    def ready(self, backend: str, capabilities: BackendCapabilities) -> None:
        """The worker is ready."""

    def died(self, backend: str, reason: str, delay: RestartDelay) -> None:
        """The worker has died, and is restarted after the delay."""

    def remote_changed(self, backend: str, unavailable: str) -> None:
        """A remote engine failed too often, or is asked again; then the text is empty."""

    def file_changed(self, backend: str, reason: str) -> None:
        """A file of the model changed during the load, which begins again."""

    def fell_back(self, backend: str, reason: str, *, crashed: str, lower: str) -> None:
        """The worker crashed with one CPU variant, and is restarted with a lower one.

        ``lower`` is empty if the restarted worker has yet to choose among the others.
        """


class _Death(NamedTuple):
    """How a worker ended."""

    reason: str
    """Shown to clients."""
    detail: str
    """Shown to the operator: includes the library's last error line."""
    was_ready: bool
    had_served: bool
    variant: CpuVariant | None
    """The variant of the library's CPU code, if the worker reported one."""
    is_broken_file: bool = False
    """Whether the content of a model's file is at fault."""
    is_changed_file: bool = False
    """Whether a model's file changed during the load."""


class Engine(SessionBackend):
    """One configured backend: a worker process, replaced when it dies.

    What its jobs send to the worker, and get back, is in ``SessionBackend``.

    Args:
        start: the program of its workers, and the message that they are started with.
        limits: timeouts and the restart policy's bounds.
        coordinator: grants memory to the worker.
        observer: receives the worker's lifecycle events.
        prespawned: a process that was started, and sent its ``Load``, before; used once.
    """

    def __init__(
        self,
        start: WorkerStart,
        *,
        limits: LimitSettings,
        coordinator: MemoryCoordinator,
        observer: WorkerObserver,
        prespawned: SpawnedProcess | None = None,
    ) -> None:
        super().__init__(prepare_timeout_s=limits.prepare_timeout_s)
        self._key = start.key or start.load.settings.name
        self._variant_fallback = VariantFallback()
        self._program, self._load = start.program, start.load
        self._credential = start.credential
        self._prespawned = prespawned
        self._limits = limits
        self._coordinator = coordinator
        self._observer = observer
        self._capabilities = BackendCapabilities()
        self._worker_pid: int | None = None
        self._sandbox_report: SandboxReport | None = None
        self._out_of_service: str | None = None
        self._tried_again_at = 0.0
        self._stopped: str | None = None
        self._changed = trio.Event()

    @property
    def name(self) -> str:
        """The configured name."""
        return self._load.settings.name

    @property
    def key(self) -> str:
        """What tells it from an engine of the same name."""
        return self._key

    @property
    def ready(self) -> bool:
        """Whether a worker is ready, and its remote engine is asked, if it has one."""
        return self._session is not None and self._out_of_service is None

    @property
    def unavailable(self) -> str | None:
        """Why the backend is stopped or a breaker is open; ``None`` otherwise."""
        return self._stopped or self._out_of_service

    @property
    def retry_after_ms(self) -> int | None:
        """Milliseconds until its remote engine is tried again; ``None`` if none is suspended."""
        if self._stopped or self._out_of_service is None:
            return None
        return max(1, round((self._tried_again_at - trio.current_time()) * 1000))

    @property
    def worker_pid(self) -> int | None:
        """The process id of its worker; ``None`` while it has none."""
        return self._worker_pid

    @property
    def capabilities(self) -> BackendCapabilities:
        """What the last worker reported that it can do."""
        return self._capabilities

    def detach(self) -> None:
        """Send no more jobs to the worker; those that it has prepared are prepared again."""
        session, self._session = self._session, None
        self._out_of_service = None
        if session is not None:
            session.is_unloaded = True
            session.fail_all(UNLOADED)

    def stop(self, reason: str) -> None:
        """Fail all jobs, current and later; the worker itself ends with ``run``."""
        session, self._session = self._session, None
        self._stopped = reason
        if session:
            session.fail_all(reason)
        self._notify()

    # --- the worker process ----------------------------------------------------------

    async def run(self, on_ready: Callable[[], None]) -> None:
        """Keep a worker alive until cancelled; then it is killed and reaped.

        Raises:
            StartFailedError: the first worker did not become ready.
        """
        policy = RestartPolicy(
            breaker_deaths=self._limits.breaker_deaths,
            breaker_open_s=self._limits.breaker_open_s,
        )
        death = await self._run_worker(on_ready)
        if not death.was_ready:
            hint = "; run: inferd doctor" if death.reason.startswith(KILLED_BY) else ""
            text = f"backend {self.name}: {death.detail}{hint}"
            raise StartFailedError(
                text, reason=death.reason, is_broken_file=death.is_broken_file
            )
        while True:
            delay = policy.died(had_served=death.had_served)
            self._out_of_service = death.reason if delay.breaker_is_open else None
            self._observer.died(self.name, death.detail, delay)
            self._notify()
            await trio.sleep(delay.seconds)
            death = await self._run_worker(_nothing)

    async def _run_worker(self, on_ready: Callable[[], None]) -> _Death:
        """Run a worker until it dies; try lower CPU variants until one gets ready."""
        while True:
            death = await self._run_unchanged(on_ready)
            if death.variant is None or death.was_ready:
                return death
            before = self._variant_fallback.crashed
            lower = self._variant_fallback.died(death.reason, death.variant)
            if lower:
                self._observer.fell_back(
                    self.name,
                    death.detail,
                    crashed=death.variant.name,
                    lower="" if death.variant.is_asked else lower,
                )
            elif before and not self._variant_fallback.crashed:
                names = ", ".join((*before, death.variant.name))
                return death._replace(detail=f"{death.detail} (with each of {names})")
            else:
                return death

    async def _run_unchanged(self, on_ready: Callable[[], None]) -> _Death:
        """Run a worker until it dies; try again while the model's files change.

        A further name for a file changes the time by which a worker knows that nobody has
        written to it. What it has read by then may not be what it has hashed, so that only
        another worker, which reads and hashes all of it, can tell.

        Bounds: ``CHANGED_FILE_LOADS`` workers.
        """
        death = await self._run_once(on_ready)
        for _ in range(CHANGED_FILE_LOADS - 1):
            if not death.is_changed_file:
                break
            self._observer.file_changed(self.name, death.detail)
            death = await self._run_once(on_ready)
        return death

    async def _run_once(self, on_ready: Callable[[], None]) -> _Death:
        """Start a worker and run it until it dies."""
        prespawned, self._prespawned = self._prespawned, None
        try:
            async with start_worker(
                self._program, prespawned, self._credential
            ) as process:
                return await self._serve_with(process, on_ready)
        except OSError as error:
            # Only from the start: errors beside a running worker come in an exception group.
            reason = f"it cannot be started: {error.strerror}"
            return _Death(
                reason=reason,
                detail=reason,
                was_ready=False,
                had_served=False,
                variant=None,
            )

    async def _serve_with(
        self, process: WorkerProcess, on_ready: Callable[[], None]
    ) -> _Death:
        """Load a worker and carry its messages until it dies."""
        session = WorkerSession(process)
        was_ready = False
        self._worker_pid = process.pid
        try:
            await self._get_ready(session)
            was_ready = True
            self._variant_fallback.got_ready(session.variant)
            on_ready()
            await session.serve(silence_s=self._limits.worker_silence_s)
        except SessionEndedError as error:
            self._session = None
            session.fail_all(f"the worker is gone: {error.reason}")
            return _Death(
                reason=error.reason,
                detail=str(error),
                was_ready=was_ready,
                had_served=session.has_served,
                variant=session.variant,
                is_broken_file=error.is_broken_file,
                is_changed_file=error.is_changed_file,
            )
        except InsufficientMemoryError as error:
            return _Death(
                reason=str(error),
                detail=str(error),
                was_ready=was_ready,
                had_served=False,
                variant=None,
            )
        finally:
            self._worker_pid = None
            if session.preparer is not None:
                await session.preparer.aclose()

    async def _get_ready(self, session: WorkerSession) -> None:
        loaded = await session.load(
            msgspec.structs.replace(
                self._load, crashed_variants=self._variant_fallback.crashed
            ),
            self._report_loading,
            partial(self._coordinator.request_share, self.key),
            silence_s=self._limits.load_silence_s,
        )
        if (
            session.sandbox_report is not None
            and session.sandbox_report != self._sandbox_report
        ):
            self._sandbox_report = session.sandbox_report
            self._observer.sandboxed(self.name, session.sandbox_report)
        self._capabilities = loaded.capabilities
        self._marker_tokens = loaded.marker_tokens
        if self._stopped is not None:
            return
        if loaded.prompt_format:
            session.preparer = Preparer(
                loaded.prompt_format,
                session.token_table.get,
                start_timeout_s=self._limits.prepare_timeout_s,
            )
        self._session = session
        session.on_availability = self._remote_changed
        self._out_of_service = None
        self._observer.ready(self.name, loaded.capabilities)
        self._notify()

    def _remote_changed(self, availability: Availability) -> None:
        pause_s = availability.retry_after_ms / 1000
        self._tried_again_at = trio.current_time() + pause_s
        unavailable = availability.unavailable or None
        if unavailable == self._out_of_service:
            return
        self._out_of_service = unavailable
        self._observer.remote_changed(self.name, availability.unavailable)
        self._notify()

    def _report_loading(self, loading: Loading) -> None:
        self._observer.loading(self.name, loading)

    def _notify(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def _wait_ready(self) -> WorkerSession:
        while self._session is None:
            if self.unavailable is not None:
                raise BackendNotReadyError(self.unavailable)
            await self._changed.wait()
        return self._session


def _nothing() -> None:
    """Do nothing."""
