"""Jobs of a worker: prepare and run them, and turn its messages into events or results."""

import itertools
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import trio
from msgspec import UNSET
from msgspec.structs import replace

from inferd.backend.events import TokenEvent, TokenEventV2
from inferd.backend.interface import (
    Backend,
    EmbedResult,
    EventStream,
    J,
    Prepared,
    RerankResult,
)
from inferd.backend.job import (
    EmbedJob,
    GenerateJob,
    Job,
    RenderedJob,
    RerankJob,
    TranscribeJob,
    media_of,
    needs_compile,
)
from inferd.dialects.families.generic import GENERIC
from inferd.dialects.families.remote import REMOTE
from inferd.dialects.registry import DIALECTS
from inferd.engine.channel.demultiplexer import JobMessage, WorkerDiedError
from inferd.engine.channel.result_queue import ResultQueue
from inferd.engine.channel.run_control import RunControl
from inferd.engine.session import WorkerSession
from inferd.engine.streams.base import error_of
from inferd.engine.streams.generation import BlockStream, TextStream
from inferd.engine.streams.speech import SpeechStream
from inferd.errors import (
    BackendUnavailableError,
    ContextOverflowError,
    InternalError,
    InvalidRequestError,
)
from inferd.ipc.worker import (
    Append,
    Embedded,
    Failed,
    Prepare,
    PromptOverflow,
    PromptReady,
    Refused,
    Scored,
)
from inferd.limits.engine import PREPARE_ATTEMPTS_MAX
from inferd.limits.protocol import MAX_FRAME_BYTES, MAX_JOB_MEDIA


class SessionBackend(Backend):
    """The part of an ``Engine`` that runs jobs: it sends them to the present worker session.

    ``Engine`` adds the rest: the worker process, which it starts, watches and replaces, and
    with each worker a new session.

    Args:
        prepare_timeout_s: seconds that preparing one job may take.
    """

    def __init__(self, *, prepare_timeout_s: float) -> None:
        self._prepare_timeout_s = prepare_timeout_s
        self._tickets = itertools.count(1)
        self._preparing = {compiling: trio.Lock() for compiling in (False, True)}
        self._session: WorkerSession | None = None
        self._fds: dict[int, Sequence[int]] = {}
        self._appended: dict[int, Append] = {}
        self._controls: dict[int, RunControl] = {}
        self._marker_tokens: frozenset[bytes] = frozenset()

    @abstractmethod
    async def _wait_ready(self) -> WorkerSession:
        """Wait for a session with a worker that is ready.

        Raises:
            BackendNotReadyError: there will be none soon.
        """

    async def render(self, job: GenerateJob) -> RenderedJob | None:
        """Render the prompt in the preparer; repeat if the worker is replaced meanwhile."""
        if job.is_plain:
            return None
        n_deaths = 0
        while n_deaths < PREPARE_ATTEMPTS_MAX:
            session = await self._wait_ready()
            if session.preparer is None:
                return None
            try:
                return await session.preparer.render(job)
            except WorkerDiedError:
                n_deaths += not session.is_unloaded
                await trio.lowlevel.checkpoint()
        raise BackendUnavailableError(
            f"the worker died {PREPARE_ATTEMPTS_MAX} times while this prompt was rendered"
        )

    @asynccontextmanager
    async def prepare(
        self,
        job: J,
        fds: Sequence[int] = (),
    ) -> AsyncIterator[Prepared[J]]:
        """Have the worker tokenise and count a job; repeat if the worker dies meanwhile."""
        n_media = len(media_of(job))
        if len(fds) != n_media:
            raise InternalError(f"{len(fds)} descriptors for {n_media} media")
        if n_media > MAX_JOB_MEDIA:
            raise InvalidRequestError(
                f"messages show media {n_media} times, at most {MAX_JOB_MEDIA} are allowed"
            )
        ticket = next(self._tickets)
        self._fds[ticket] = fds
        self._controls[ticket] = RunControl(ticket)
        try:
            ready = await self._prepare(ticket, job)
            yield Prepared(
                ticket=ticket,
                job=job,
                input_tokens=ready.prompt_tokens,
                is_estimate=ready.is_estimate,
                open_thought=ready.open_thought,
            )
        finally:
            del self._fds[ticket], self._controls[ticket]
            self._appended.pop(ticket, None)
            if self._session is not None:
                self._session.close(ticket)

    def append_audio(
        self, prepared: Prepared[TranscribeJob], n_bytes: int, *, is_last: bool
    ) -> None:
        """Report more audio to the worker, and to any worker that replaces it."""
        ticket = prepared.ticket
        if ticket not in self._fds:
            return  # the job has ended
        message = Append(ticket=ticket, n_bytes=n_bytes, is_last=is_last)
        self._appended[ticket] = message
        if self._session is not None and self._session.has_job(ticket):
            self._session.send(message)

    def pause(self, prepared: Prepared[J], on_paused: Callable[[], object]) -> None:
        """Pause a job in the worker; one that does not run yet is held back here."""
        self._controls[prepared.ticket].pause(on_paused)

    def resume(self, prepared: Prepared[J]) -> None:
        """Resume a paused job."""
        self._controls[prepared.ticket].resume()

    def report_queue_position(self, prepared: Prepared[J], position: int) -> None:
        """Put the queue position among the job's results."""
        if self._session is not None:
            self._session.put_queue_position(prepared.ticket, position)

    def on_audio_needed(
        self, prepared: Prepared[TranscribeJob], callback: Callable[[int], object]
    ) -> None:
        """Set the callback for a job that waits for more audio."""
        self._controls[prepared.ticket].on_audio_needed = callback

    async def _prepare(self, ticket: int, job: Job) -> PromptReady:
        n_deaths = 0
        while n_deaths < PREPARE_ATTEMPTS_MAX:
            # One at a time of each kind, so that each has the whole timeout to itself.
            async with self._preparing[needs_compile(job)]:
                session = await self._wait_ready()
                answer = await self._ask_to_prepare(session, ticket, job)
            match answer:
                case PromptReady():
                    return answer
                case PromptOverflow(
                    prompt_tokens=n_tokens, n_ctx=n_ctx, at_least=at_least
                ):
                    raise ContextOverflowError(n_tokens, n_ctx, at_least=at_least)
                case Refused(reason=reason):
                    raise InvalidRequestError(reason)
                case Failed(reason=reason):
                    raise InternalError(reason)
                case WorkerDiedError():
                    n_deaths += not session.is_unloaded
                case _:
                    raise InternalError(
                        "unexpected message from the worker for a prepare"
                    )
        raise BackendUnavailableError(
            f"the worker died {PREPARE_ATTEMPTS_MAX} times while this prompt was prepared"
        )

    async def _ask_to_prepare(
        self, session: WorkerSession, ticket: int, job: Job
    ) -> JobMessage | WorkerDiedError:
        within_s = self._prepare_timeout_s
        try:
            await session.finish_preparing(within_s, compiling=needs_compile(job))
            results = session.open(ticket)
            self._send_prepare(session, ticket, job)
            with trio.fail_after(within_s):
                answer, *more = await results.get_all()
        except WorkerDiedError as error:
            return error
        except trio.TooSlowError:
            session.kill()
            raise BackendUnavailableError(
                "preparing the prompt took too long"
            ) from None
        if more:
            raise InternalError("the worker answered a prepare more than once")
        return answer

    def _send_prepare(self, session: WorkerSession, ticket: int, job: Job) -> None:
        """Send a job with its media, and with the audio length reported since."""
        try:
            session.send(
                Prepare(ticket=ticket, job=_without_sources(job)), self._fds[ticket]
            )
        except OSError as error:
            raise BackendUnavailableError(
                f"the media cannot be passed on: {error.strerror}"
            ) from error
        if appended := self._appended.get(ticket):
            session.send(appended)

    @asynccontextmanager
    async def generate(
        self, prepared: Prepared[GenerateJob]
    ) -> AsyncIterator[EventStream[TokenEvent]]:
        """Run a prepared job."""
        async with self._running(prepared) as results:
            yield TextStream(results, prepared, self._marker_tokens)

    @asynccontextmanager
    async def generate_v2(
        self, prepared: Prepared[GenerateJob]
    ) -> AsyncIterator[EventStream[TokenEventV2]]:
        """Run a prepared job; reasoning and tool calls are separated from text."""
        async with self._running(prepared) as results:
            known = DIALECTS.get(self.capabilities.dialect, GENERIC)
            dialect = REMOTE if self.capabilities.remote else known
            yield BlockStream(results, prepared, dialect)

    @asynccontextmanager
    async def transcribe(
        self, prepared: Prepared[TranscribeJob]
    ) -> AsyncIterator[EventStream[TokenEventV2]]:
        """Run a prepared job."""
        async with self._running(prepared) as results:
            yield SpeechStream(results, prepared)

    async def embed(self, prepared: Prepared[EmbedJob]) -> EmbedResult:
        """Run a prepared job."""
        async with self._running(prepared) as results:
            parts = await _until_last(results)
            n_tokens, is_estimate = _counted(prepared, parts[-1].n_tokens)
            return EmbedResult(
                embeddings=[part.embeddings for part in parts],
                dimensions=parts[-1].dimensions,
                input_tokens=n_tokens,
                is_estimate=is_estimate,
            )

    async def rerank(self, prepared: Prepared[RerankJob]) -> RerankResult:
        """Run a prepared job."""
        async with self._running(prepared) as results:
            match await results.get_all():
                case [Scored(scores=scores) as scored] if len(scores) == len(
                    prepared.job.documents
                ):
                    n_tokens, is_estimate = _counted(prepared, scored.n_tokens)
                    return RerankResult(
                        scores=scores, input_tokens=n_tokens, is_estimate=is_estimate
                    )
                case [Failed() as failed]:
                    raise error_of(failed)
                case _:
                    raise InternalError(
                        "unexpected message from the worker for a rerank job"
                    )

    @asynccontextmanager
    async def _running(
        self, prepared: Prepared[J]
    ) -> AsyncIterator[ResultQueue[JobMessage]]:
        """Start a job; prepare it again if the worker that did is gone."""
        ticket, control = prepared.ticket, self._controls[prepared.ticket]
        await control.wait_resumed()
        while (session := self._session) is None or not session.has_job(ticket):
            await self._prepare(ticket, prepared.job)
            await control.wait_resumed()
        results = session.open(ticket)
        control.began(session)
        session.run(ticket, control)
        try:
            yield results
        finally:
            control.ended()
            session.close(ticket)


def _counted(
    prepared: Prepared[EmbedJob] | Prepared[RerankJob], n_tokens: int | None
) -> tuple[int, bool]:
    """Return the tokens of a job, and whether they are estimated.

    Args:
        prepared: with what was counted, or estimated, before the run.
        n_tokens: counted during the run; ``None`` if that was not necessary.
    """
    if n_tokens is None:
        return prepared.input_tokens, prepared.is_estimate
    return n_tokens, False


async def _until_last(results: ResultQueue[JobMessage]) -> list[Embedded]:
    """Collect vectors up to the last message of them."""
    parts: list[Embedded] = []
    n_bytes = 0
    while not (parts and parts[-1].is_last):
        for answer in await results.get_all():
            match answer:
                case Embedded():
                    parts.append(answer)
                    n_bytes += len(answer.embeddings)
                case Failed() as failed:
                    raise error_of(failed)
                case _:
                    raise InternalError(
                        "unexpected message from the worker for an embed job"
                    )
        if n_bytes > MAX_FRAME_BYTES:
            raise InternalError("the worker sent more vectors than an answer may have")
    return parts


def _without_sources(job: Job) -> Job:
    """Leave out the parts of a job that its prompt was rendered from."""
    if isinstance(job, GenerateJob) and job.input_tokens:
        return job
    if isinstance(job, GenerateJob) and job.rendered is not None:
        return replace(job, turns=[], tools=(), content=UNSET)
    return job
