"""A backend that follows a script, in the test's own event loop and on its clock."""

import itertools
import math
import os
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

import trio

from inferd.backend.capabilities import BackendCapabilities
from inferd.backend.events import (
    AudioRead,
    Done,
    DoneV2,
    MalformedToolCall,
    Progress,
    Text,
    Thinking,
    Token,
    TokenEvent,
    TokenEventV2,
    ToolUse,
    Transcription,
)
from inferd.backend.interface import (
    Backend,
    CacheReuse,
    EmbedResult,
    EventStream,
    J,
    Prepared,
    RerankResult,
    StartFailedError,
)
from inferd.backend.job import EmbedJob, GenerateJob, RerankJob, TranscribeJob
from inferd.engine.one_shot_cancel import OneShotCancel
from inferd.errors import BackendNotReadyError, BackendUnavailableError
from inferd.wire.responses import DraftCounts, StopReason, StopReasonV2, Usage, UsageV2

E = TypeVar("E", TokenEvent, TokenEventV2)

FOR_EVER: Final = math.inf
"""Seconds that do not end."""

ABLE: Final = BackendCapabilities(
    model="script",
    v2=True,
    tools=True,
    thinking=True,
    embed=True,
    rerank=True,
    n_embd=2,
)
"""All that the script can be about."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Script:
    """What happens to one job."""

    prepare_s: float = 0.0
    """Seconds until its prompt is ready; ``FOR_EVER`` hangs."""
    refusal: Exception | None = None
    """Raised instead of being ready."""
    prompt_tokens: int = 3
    prefilled: tuple[int, ...] = ()
    """How far the prompt is, told before the first token to a job that wants it."""
    tokens: tuple[str, ...] = ("one ", "two")
    blocks: tuple[Text | Thinking | ToolUse, ...] | None = None
    """What v2 says, a token each; else the tokens as text."""
    token_delay_s: float = 0.0
    """Seconds before each token, or before vectors and scores."""
    failure: Exception | None = None
    """Raised when the tokens are said, or in place of vectors and scores."""
    ends_without_done: bool = False
    failure_after_done: Exception | None = None
    failure_at_exit: Exception | None = None
    """Raised when the run is left, whatever the reason."""
    stop_reason: StopReason = "end"
    stop_reason_v2: StopReasonV2 = "end_turn"
    stop_sequence: str | None = None
    stop_token_id: int | None = None
    warnings: tuple[MalformedToolCall, ...] = ()
    transcription: Transcription | None = None
    """Told at the end of one."""
    embeddings: bytes = b"[[0.6,0.8]]"
    scores: tuple[float, ...] | None = None
    """Else 0 for each document."""


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
    paused: int = 0


@dataclass(slots=True)
class _Held:
    """A job that somebody is inside ``prepare`` with."""

    script: Script
    is_running: bool = False
    is_over: bool = False
    said_all_at: float = FOR_EVER
    """When the last token comes, whether anybody takes it or not; on trio's clock."""
    death: OneShotCancel = field(default_factory=OneShotCancel)
    paused_at: float | None = None
    paused_s: float = 0.0
    """Seconds by which all that it says is later, for its pauses."""
    resumed: trio.Event = field(default_factory=trio.Event)
    n_bytes: int = 0
    """Of open sound, that are there."""
    is_whole: bool = False
    grown: trio.Event = field(default_factory=trio.Event)


class _Speech(Generic[E]):
    """A stream of scripted events."""

    def __init__(self, held: _Held) -> None:
        self._held = held
        self.n_tokens = 0
        self.n_first_tokens = 0
        self.first_token_at: float | None = None
        self.warnings: Sequence[MalformedToolCall] = ()
        self.reuse = CacheReuse()
        self.draft_counts = DraftCounts()
        self.unsent_token_ids: Sequence[int] = ()
        self.events: AsyncGenerator[Sequence[E], None]

    def __aiter__(self) -> AsyncIterator[Sequence[E]]:
        return self.events

    async def forward(self, send: Callable[[Iterable[E]], bool]) -> bool:
        async for batch in self.events:
            if not send(batch):
                return True
        return False

    @contextmanager
    def until_over(self) -> Iterator[None]:
        with trio.move_on_at(self._held.said_all_at), self._held.death.until_fired():
            yield


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
        self._capabilities = capabilities or ABLE
        self._is_ready = is_ready
        self._unavailable: str | None = None
        self._retry_after_ms: int | None = None
        self._start_failure: str | None = None
        self._changed = trio.Event()
        self._stopped = trio.Event()
        self._tickets = itertools.count()
        self._held: dict[int, _Held] = {}
        self.counts = Counts()
        self.jobs: list[Any] = []
        self.media: list[list[bytes]] = []
        """Of each job, as far as they were there."""
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
        """Jobs that are being run."""
        return sum(held.is_running for held in self._held.values())

    def become_ready(self) -> None:
        """Serve from here on."""
        self._is_ready, self._unavailable = True, None
        self._tell()

    def go_down(
        self, reason: str | None = None, retry_after_ms: int | None = None
    ) -> None:
        """Stop serving: with a reason for good, without one for a while."""
        self._is_ready, self._unavailable = False, reason
        self._retry_after_ms = retry_after_ms
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
    def retry_after_ms(self) -> int | None:
        return self._retry_after_ms

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
        for held in self._held.values():
            held.death.fire()

    @asynccontextmanager
    async def prepare(
        self, job: J, fds: Sequence[int] = ()
    ) -> AsyncIterator[Prepared[J]]:
        ticket = next(self._tickets)
        held = _Held(self._scripts[min(ticket, len(self._scripts) - 1)])
        self._held[ticket] = held
        self.counts.asked += 1
        self.jobs.append(job)
        self.media.append([os.pread(fd, os.fstat(fd).st_size, 0) for fd in fds])
        try:
            with self._counting_failure(held):
                await self._wait_ready()
                await self._pass(held.script.prepare_s)
                if held.script.refusal is not None:
                    raise held.script.refusal
            self.counts.prepared += 1
            yield Prepared(
                ticket=ticket, job=job, input_tokens=held.script.prompt_tokens
            )
        finally:
            del self._held[ticket]
            self.counts.cancelled += not held.is_over

    def pause(self, prepared: Prepared[J], on_paused: Callable[[], object]) -> None:
        held = self._held[prepared.ticket]
        held.paused_at = trio.current_time()
        held.said_all_at += FOR_EVER
        self.counts.paused += 1
        on_paused()

    def resume(self, prepared: Prepared[J]) -> None:
        held = self._held[prepared.ticket]
        assert held.paused_at is not None
        held.paused_s += trio.current_time() - held.paused_at
        held.paused_at = None
        held.resumed.set()
        held.resumed = trio.Event()

    @asynccontextmanager
    async def generate(
        self, prepared: Prepared[GenerateJob]
    ) -> AsyncIterator[EventStream[TokenEvent]]:
        with self._running(prepared) as held:
            speech = _Speech[TokenEvent](held)
            script = held.script
            usage = Usage(prepared.input_tokens, _n_said(held, prepared.job))
            done = Done(stop_reason=script.stop_reason, usage=usage)
            words: list[TokenEvent] = [Token(text) for text in script.tokens]
            speech.events = self._say(held, prepared, speech, [*words, done])
            try:
                yield speech
            finally:
                await speech.events.aclose()

    @asynccontextmanager
    async def generate_v2(
        self, prepared: Prepared[GenerateJob]
    ) -> AsyncIterator[EventStream[TokenEventV2]]:
        with self._running(prepared) as held:
            speech = _Speech[TokenEventV2](held)
            script = held.script
            done = DoneV2(
                stop_reason=script.stop_reason_v2,
                usage=UsageV2(prepared.input_tokens, _n_said(held, prepared.job)),
                stop_sequence=script.stop_sequence,
                stop_token_id=script.stop_token_id,
                warnings=script.warnings,
            )
            words: list[TokenEventV2] = [*_blocks_of(script)]
            speech.events = self._say(held, prepared, speech, [*words, done])
            try:
                yield speech
            finally:
                await speech.events.aclose()

    @asynccontextmanager
    async def transcribe(
        self, prepared: Prepared[TranscribeJob]
    ) -> AsyncIterator[EventStream[TokenEventV2]]:
        with self._running(prepared) as held:
            speech = _Speech[TokenEventV2](held)
            script = held.script
            done = DoneV2(
                stop_reason=script.stop_reason_v2,
                usage=UsageV2(prepared.input_tokens, _n_said(held, prepared.job)),
                transcription=script.transcription,
            )
            words: list[TokenEventV2] = [*_blocks_of(script)]
            speech.events = self._hear(held, prepared, speech, [*words, done])
            try:
                yield speech
            finally:
                await speech.events.aclose()

    def append_audio(
        self, prepared: Prepared[TranscribeJob], n_bytes: int, *, is_last: bool
    ) -> None:
        if held := self._held.get(prepared.ticket):
            held.n_bytes, held.is_whole = n_bytes, is_last
            held.grown.set()

    async def embed(self, prepared: Prepared[EmbedJob]) -> EmbedResult:
        with self._running(prepared) as held:
            await self._compute(held)
            return EmbedResult(
                embeddings=[held.script.embeddings],
                dimensions=prepared.job.dimensions or self._capabilities.n_embd,
                input_tokens=prepared.input_tokens,
            )

    async def rerank(self, prepared: Prepared[RerankJob]) -> RerankResult:
        with self._running(prepared) as held:
            await self._compute(held)
            scores = held.script.scores
            n_documents = len(prepared.job.documents)
            return RerankResult(
                scores=[0.0] * n_documents if scores is None else list(scores),
                input_tokens=prepared.input_tokens,
            )

    # --- how a script is followed -----------------------------------------------------

    @contextmanager
    def _running(self, prepared: Prepared[J]) -> Iterator[_Held]:
        held = self._held[prepared.ticket]
        held.is_running = True
        self.counts.started += 1
        try:
            yield held
        finally:
            held.is_running = False
            if held.script.failure_at_exit is not None:
                raise held.script.failure_at_exit

    async def _hear(
        self,
        held: _Held,
        prepared: Prepared[TranscribeJob],
        speech: _Speech[TokenEventV2],
        events: Sequence[TokenEventV2],
    ) -> AsyncGenerator[Sequence[TokenEventV2], None]:
        is_open = prepared.job.audio.is_open
        while is_open:
            with self._counting_failure(held):
                await self._pass_until(held.grown)
            held.grown = trio.Event()
            is_open = not held.is_whole
            yield [AudioRead(held.n_bytes)]
        async for batch in self._say(held, prepared, speech, events):
            yield batch

    async def _say(
        self,
        held: _Held,
        prepared: Prepared[GenerateJob] | Prepared[TranscribeJob],
        speech: _Speech[E],
        events: Sequence[E],
    ) -> AsyncGenerator[Sequence[E], None]:
        script = held.script
        said = events[: _n_said(held, prepared.job)]
        moments = [
            trio.current_time() + script.token_delay_s * n for n in _from_1(said)
        ]
        held.said_all_at = moments[-1] if moments else trio.current_time()
        job = prepared.job
        if isinstance(job, GenerateJob) and job.wants_progress:
            for n_tokens in script.prefilled:
                yield [Progress(n_tokens, prepared.input_tokens)]
        for event, moment in zip(said, moments, strict=True):
            with self._counting_failure(held):
                await self._pass_to(held, moment)
            held.said_all_at = moments[-1] + held.paused_s
            if not speech.n_tokens:
                speech.first_token_at = trio.current_time()
            speech.n_tokens += 1
            yield [event]
        with self._counting_failure(held):
            if script.failure is not None:
                raise script.failure
        held.is_over = True
        if script.ends_without_done:
            return
        self.counts.done += 1
        yield [events[-1]]
        if script.failure_after_done is not None:
            raise script.failure_after_done

    async def _compute(self, held: _Held) -> None:
        with self._counting_failure(held):
            await self._pass(held.script.token_delay_s)
            if held.script.failure is not None:
                raise held.script.failure
        held.is_over = True
        self.counts.done += 1

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

    async def _pass_to(self, held: _Held, moment: float) -> None:
        """Let time pass up to a moment that every pause puts off."""
        while True:
            if held.paused_at is not None:
                await self._pass_until(held.resumed)
                continue
            left_s = moment + held.paused_s - trio.current_time()
            if left_s <= 0:
                return
            await self._pass(left_s)

    async def _pass_until(self, event: trio.Event) -> None:
        """Wait, unless the backend is stopped meanwhile."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_after, self._stopped, nursery.cancel_scope)
            await event.wait()
            nursery.cancel_scope.cancel()
        if self._stopped.is_set():
            raise BackendUnavailableError(self._unavailable or "stopped")

    def _tell(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


def _blocks_of(script: Script) -> Sequence[Text | Thinking | ToolUse]:
    if script.blocks is not None:
        return script.blocks
    return [Text(token) for token in script.tokens]


def _from_1(events: Sequence[object]) -> range:
    return range(1, len(events) + 1)


def _n_said(held: _Held, job: GenerateJob | TranscribeJob) -> int:
    blocks = held.script.blocks
    n_tokens = len(held.script.tokens if blocks is None else blocks)
    return n_tokens if job.max_tokens is None else min(n_tokens, job.max_tokens)


async def _cancel_after(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()
