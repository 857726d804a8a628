"""A backend that follows a script, in the test's own event loop and on its clock."""

import itertools
import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Final

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
from inferd.errors import BackendNotReadyError, BackendUnavailableError
from inferd.job import GenerateJob
from inferd.wire.responses import StopReason, Usage

FOR_EVER: Final = math.inf
"""Seconds that do not end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Script:
    """What happens to one job."""

    prepare_s: float = 0.0
    """Seconds until its prompt is ready; ``FOR_EVER`` hangs."""
    refusal: Exception | None = None
    """Raised instead of being ready."""
    prompt_tokens: int = 3
    tokens: tuple[str, ...] = ("one ", "two")
    token_delay_s: float = 0.0
    """Seconds before each token."""
    failure: Exception | None = None
    """Raised when the tokens are said."""
    ends_without_done: bool = False
    failure_after_done: Exception | None = None
    stop_reason: StopReason = "end"


@dataclass(slots=True)
class Counts:
    """How many jobs came how far, over the backend's life."""

    asked: int = 0
    prepared: int = 0
    started: int = 0
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    """Left before they were done or had failed."""


@dataclass(slots=True)
class _Held:
    """A job that somebody is inside ``prepare`` with."""

    script: Script
    is_running: bool = False
    is_over: bool = False


class ScriptedBackend(Backend):
    """Follows one script a job, in the order in which jobs come; the last one repeats.

    Args:
        scripts: at least one.
        is_ready: whether it is ready as soon as it runs.
    """

    def __init__(
        self,
        *scripts: Script,
        name: str = "scripted",
        is_ready: bool = True,
        capabilities: BackendCapabilities | None = None,
    ) -> None:
        self._scripts = scripts or (Script(),)
        self._name = name
        self._capabilities = capabilities or BackendCapabilities(model="script")
        self._is_ready = is_ready
        self._unavailable: str | None = None
        self._start_failure: str | None = None
        self._changed = trio.Event()
        self._stopped = trio.Event()
        self._tickets = itertools.count()
        self._held: dict[int, _Held] = {}
        self.counts = Counts()
        self.jobs: list[GenerateJob] = []
        self.is_alive = False

    # --- what a test does with it -----------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether it has no job in any state."""
        return not self._held

    @property
    def n_held(self) -> int:
        """Jobs that it knows: being prepared, prepared or running."""
        return len(self._held)

    @property
    def n_running(self) -> int:
        """Jobs that are saying their tokens."""
        return sum(held.is_running for held in self._held.values())

    def become_ready(self) -> None:
        """Serve from here on."""
        self._is_ready, self._unavailable = True, None
        self._tell()

    def go_down(self, reason: str | None = None) -> None:
        """Stop serving: with a reason for good, without one for a while."""
        self._is_ready, self._unavailable = False, reason
        self._tell()

    def fail_to_start(self, reason: str) -> None:
        """Have ``run`` raise."""
        self._start_failure = reason
        self._tell()

    # --- Backend ----------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self._name

    @property
    def ready(self) -> bool:
        return self._is_ready

    @property
    def unavailable(self) -> str | None:
        return self._unavailable

    @property
    def capabilities(self) -> BackendCapabilities:
        return self._capabilities

    async def run(self, on_ready: Callable[[], None]) -> None:
        self.is_alive = True
        try:
            while not self._is_ready:
                if self._start_failure is not None:
                    raise StartFailedError(self._start_failure)
                await self._changed.wait()
            on_ready()
            await trio.sleep_forever()
        finally:
            self.is_alive = False

    def stop(self, reason: str) -> None:
        self.go_down(reason)
        self._stopped.set()

    @asynccontextmanager
    async def prepare(self, job: GenerateJob) -> AsyncIterator[Prepared]:
        ticket = next(self._tickets)
        held = _Held(self._scripts[min(ticket, len(self._scripts) - 1)])
        self._held[ticket] = held
        self.counts.asked += 1
        self.jobs.append(job)
        try:
            with self._counting_failure(held):
                await self._wait_ready()
                await self._pass(held.script.prepare_s)
                if held.script.refusal is not None:
                    raise held.script.refusal
            self.counts.prepared += 1
            yield Prepared(
                ticket=ticket, job=job, prompt_tokens=held.script.prompt_tokens
            )
        finally:
            del self._held[ticket]
            self.counts.cancelled += not held.is_over

    @asynccontextmanager
    async def generate(self, prepared: Prepared) -> AsyncIterator[TokenStream]:
        held = self._held[prepared.ticket]
        held.is_running = True
        self.counts.started += 1
        stream = self._say(held, prepared)
        try:
            yield stream
        finally:
            held.is_running = False
            await stream.aclose()

    async def _say(
        self, held: _Held, prepared: Prepared
    ) -> AsyncGenerator[Sequence[TokenEvent], None]:
        script = held.script
        tokens = script.tokens[: prepared.job.max_tokens]
        for token in tokens:
            with self._counting_failure(held):
                await self._pass(script.token_delay_s)
            yield [Token(token)]
        with self._counting_failure(held):
            if script.failure is not None:
                raise script.failure
        held.is_over = True
        if script.ends_without_done:
            return
        self.counts.done += 1
        usage = Usage(
            prompt_tokens=prepared.prompt_tokens, completion_tokens=len(tokens)
        )
        yield [Done(stop_reason=script.stop_reason, usage=usage)]
        if script.failure_after_done is not None:
            raise script.failure_after_done

    @contextmanager
    def _counting_failure(self, held: _Held) -> Iterator[None]:
        try:
            yield
        except Exception:
            held.is_over = True
            self.counts.failed += 1
            raise

    async def _wait_ready(self) -> None:
        while not self._is_ready:
            if self._unavailable is not None:
                raise BackendNotReadyError(self._unavailable)
            await self._changed.wait()

    async def _pass(self, seconds: float) -> None:
        """Let time pass, unless the backend is stopped meanwhile."""
        with trio.move_on_after(seconds):
            await self._stopped.wait()
        if self._stopped.is_set():
            raise BackendUnavailableError(self._unavailable or "stopped")

    def _tell(self) -> None:
        self._changed.set()
        self._changed = trio.Event()
