"""A backend that is a worker process, kept alive."""

import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple, Protocol

import trio

from inferd.backend import (
    Backend,
    BackendCapabilities,
    Done,
    Prepared,
    StartFailedError,
    Token,
    TokenEvent,
    TokenStream,
)
from inferd.config import BackendSettings, LimitSettings
from inferd.engine.mailbox import Mailbox
from inferd.engine.process import KILLED_BY, start_worker
from inferd.engine.restart import Pause, RestartPolicy
from inferd.engine.session import Answer, Session, SessionOverError, WorkerDiedError
from inferd.errors import (
    BackendNotReadyError,
    BackendUnavailableError,
    ContextOverflowError,
    InternalError,
    InvalidRequestError,
)
from inferd.ipc import (
    Ended,
    Load,
    Loading,
    Overflow,
    Prepare,
    PromptReady,
    Refused,
    Run,
)
from inferd.job import GenerateJob
from inferd.limits import HEARTBEAT_S, HEARTBEATS_IN_SILENCE, MAX_PREPARES
from inferd.output.utf8 import TextDecoder


class Observer(Protocol):
    """Who wants to know how a worker fares."""

    def loading(self, backend: str, loading: Loading) -> None:
        """It is on its way to ready."""

    def ready(self, backend: str, capabilities: BackendCapabilities) -> None:
        """It serves."""

    def died(self, backend: str, reason: str, pause: Pause) -> None:
        """It is gone, and comes back after the pause."""


class _Death(NamedTuple):
    """How a worker's life ended."""

    reason: str
    """For clients."""
    whole_reason: str
    """For the operator: with the library's own last words."""
    was_ready: bool
    had_served: bool


class Engine(Backend):
    """One configured backend: a worker, and another one when that dies."""

    def __init__(
        self,
        settings: BackendSettings,
        *,
        n_slots: int,
        limits: LimitSettings,
        observer: Observer,
    ) -> None:
        self._settings = settings
        self._load = Load(
            settings=settings,
            n_slots=n_slots,
            heartbeat_s=min(
                HEARTBEAT_S, limits.worker_silence_s / HEARTBEATS_IN_SILENCE
            ),
        )
        self._limits = limits
        self._observer = observer
        self._tickets = itertools.count(1)
        self._session: Session | None = None
        self._capabilities = BackendCapabilities()
        self._out_of_service: str | None = None
        self._stopped: str | None = None
        self._changed = trio.Event()
        self._preparing = trio.Lock()

    @property
    def name(self) -> str:
        """Its configured name."""
        return self._settings.name

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
        """Start a worker and serve with it until it is gone."""
        async with start_worker() as process:
            session = Session(process)
            was_ready = False
            try:
                await self._get_ready(session)
                was_ready = True
                on_ready()
                await session.serve(silence_s=self._limits.worker_silence_s)
            except SessionOverError as error:
                self._session = None
                session.fail_all(f"the worker is gone: {error.reason}")
                return _Death(error.reason, str(error), was_ready, session.has_served)

    async def _get_ready(self, session: Session) -> None:
        loaded = await session.load(
            self._load,
            lambda loading: self._observer.loading(self.name, loading),
            silence_s=self._limits.load_silence_s,
        )
        self._capabilities = loaded.capabilities
        if self._stopped is not None:
            return
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

    # --- jobs -------------------------------------------------------------------------

    @asynccontextmanager
    async def prepare(self, job: GenerateJob) -> AsyncIterator[Prepared]:
        """Have the worker render and count the prompt; again if it dies over it."""
        ticket = next(self._tickets)
        try:
            yield await self._prepare(ticket, job)
        finally:
            if self._session is not None:
                self._session.close(ticket)

    async def _prepare(self, ticket: int, job: GenerateJob) -> Prepared:
        for _ in range(MAX_PREPARES):
            async with self._preparing:  # one at a time, so that each has its own time
                session = await self._wait_ready()
                answer = await self._ask_to_prepare(session, ticket, job)
            match answer:
                case PromptReady(prompt_tokens=n_tokens):
                    return Prepared(ticket=ticket, job=job, prompt_tokens=n_tokens)
                case Overflow(prompt_tokens=n_tokens, n_ctx=n_ctx):
                    raise ContextOverflowError(n_tokens, n_ctx)
                case Refused(reason=reason):
                    raise InvalidRequestError(reason)
                case WorkerDiedError():
                    continue
                case _:
                    raise InternalError("the worker answered out of turn")
        raise BackendUnavailableError(
            f"the worker died {MAX_PREPARES} times while this prompt was prepared"
        )

    async def _ask_to_prepare(
        self, session: Session, ticket: int, job: GenerateJob
    ) -> Answer | WorkerDiedError:
        within_s = self._limits.prepare_timeout_s
        try:
            await session.finish_preparing(within_s)
            box = session.open(ticket)
            session.post(Prepare(ticket=ticket, job=job))
            with trio.fail_after(within_s):
                answer, *more = await box.take()
        except WorkerDiedError as error:
            return error
        except trio.TooSlowError:
            session.kill()
            raise BackendUnavailableError(
                "preparing the prompt took too long"
            ) from None
        if more:
            raise InternalError("the worker answered a prompt more than once")
        return answer

    @asynccontextmanager
    async def generate(self, prepared: Prepared) -> AsyncIterator[TokenStream]:
        """Run a prepared job, preparing it anew if that worker is gone."""
        ticket = prepared.ticket
        while (session := self._session) is None or not session.knows(ticket):
            await self._prepare(ticket, prepared.job)
        box = session.open(ticket)
        session.post(Run(ticket=ticket))
        try:
            yield _Events(box)
        finally:
            session.close(ticket)


class _Events:
    """A job's answers as events: bytes become text here."""

    def __init__(self, box: Mailbox[Answer]) -> None:
        self._box = box
        self._text = TextDecoder()
        self._is_over = False

    def __aiter__(self) -> AsyncIterator[Sequence[TokenEvent]]:
        return self

    async def __anext__(self) -> Sequence[TokenEvent]:
        if self._is_over:
            raise StopAsyncIteration
        events: list[TokenEvent] = []
        while not events:
            for answer in await self._box.take():
                events += self._events_of(answer)
        return events

    def _events_of(self, answer: Answer) -> list[TokenEvent]:
        match answer:
            case bytes():
                text = self._text.feed(answer)
                return [Token(text)] if text else []
            case Ended(stop_reason=why, usage=usage):
                self._is_over = True
                rest = self._text.finish()
                done = Done(stop_reason=why, usage=usage)
                return [Token(rest), done] if rest else [done]
            case _:
                raise InternalError("the worker answered a run with something else")


def _nothing() -> None:
    """Do nothing."""
