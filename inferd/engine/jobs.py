"""Jobs of a worker: prepared, run, and their answers as events or results."""

import itertools
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import trio
from msgspec import UNSET
from msgspec.structs import replace

from inferd.backend import Backend, EmbedResult, EventStream, J, Prepared, RerankResult
from inferd.dialects.generic import GENERIC
from inferd.dialects.registry import DIALECTS
from inferd.engine.answers import Answer, WorkerDiedError
from inferd.engine.hold import Hold
from inferd.engine.mailbox import Mailbox
from inferd.engine.session import Session
from inferd.engine.speech import SpeechStream
from inferd.engine.streams import BlockStream, TextStream
from inferd.errors import (
    BackendUnavailableError,
    ContextOverflowError,
    InternalError,
    InvalidRequestError,
)
from inferd.events import TokenEvent, TokenEventV2
from inferd.ipc import (
    Append,
    Embedded,
    Failed,
    Overflow,
    Prepare,
    PromptReady,
    Refused,
    Scored,
)
from inferd.job import (
    EmbedJob,
    GenerateJob,
    Job,
    RerankJob,
    TranscribeJob,
    Written,
    compiles,
    media_of,
)
from inferd.limits import MAX_FRAME_BYTES, MAX_JOB_MEDIA, MAX_PREPARES


class JobBackend(Backend):
    """A backend whose jobs are done in a session; which one that is may change.

    Args:
        prepare_timeout_s: seconds one job may take to be prepared.
    """

    def __init__(self, *, prepare_timeout_s: float) -> None:
        self._prepare_timeout_s = prepare_timeout_s
        self._tickets = itertools.count(1)
        self._preparing = {compiling: trio.Lock() for compiling in (False, True)}
        self._session: Session | None = None
        self._fds: dict[int, Sequence[int]] = {}
        self._appended: dict[int, Append] = {}
        self._holds: dict[int, Hold] = {}
        self._marker_tokens: frozenset[bytes] = frozenset()

    @abstractmethod
    async def _wait_ready(self) -> Session:
        """Wait for a session that serves.

        Raises:
            BackendNotReadyError: there will be none soon.
        """

    async def write(self, job: GenerateJob) -> Written | None:
        """Have the process beside the worker write it; again if the worker is replaced."""
        if job.is_plain:
            return None
        for _ in range(MAX_PREPARES):
            session = await self._wait_ready()
            if session.preparer is None:
                return None
            try:
                return await session.preparer.write(job)
            except WorkerDiedError:
                await trio.lowlevel.checkpoint()
        raise BackendUnavailableError(
            f"the worker died {MAX_PREPARES} times while this prompt was written"
        )

    @asynccontextmanager
    async def prepare(
        self,
        job: J,
        fds: Sequence[int] = (),
    ) -> AsyncIterator[Prepared[J]]:
        """Have the worker read a job's texts and count; again if it dies over it."""
        n_media = len(media_of(job))
        if len(fds) != n_media:
            raise InternalError(f"{len(fds)} descriptors for {n_media} media")
        if n_media > MAX_JOB_MEDIA:
            raise InvalidRequestError(
                f"messages show media {n_media} times, at most {MAX_JOB_MEDIA} are allowed"
            )
        ticket = next(self._tickets)
        self._fds[ticket] = fds
        self._holds[ticket] = Hold(ticket)
        try:
            ready = await self._prepare(ticket, job)
            yield Prepared(
                ticket=ticket,
                job=job,
                input_tokens=ready.prompt_tokens,
                open_thought=ready.open_thought,
            )
        finally:
            del self._fds[ticket], self._holds[ticket]
            self._appended.pop(ticket, None)
            if self._session is not None:
                self._session.close(ticket)

    def append(
        self, prepared: Prepared[TranscribeJob], n_bytes: int, *, is_last: bool
    ) -> None:
        """Tell the worker that there is more sound, and the next one if that dies."""
        ticket = prepared.ticket
        if ticket not in self._fds:
            return  # it is over
        told = Append(ticket=ticket, n_bytes=n_bytes, is_last=is_last)
        self._appended[ticket] = told
        if self._session is not None and self._session.knows(ticket):
            self._session.post(told)

    def pause(self, prepared: Prepared[J], on_paused: Callable[[], object]) -> None:
        """Have the worker pause a job; one that does not run yet waits here."""
        self._holds[prepared.ticket].pause(on_paused)

    def resume(self, prepared: Prepared[J]) -> None:
        """Have the worker go on with a job."""
        self._holds[prepared.ticket].resume()

    def tell(self, prepared: Prepared[J], position: int) -> None:
        """Put the place in the queue among the job's answers."""
        if self._session is not None:
            self._session.tell(prepared.ticket, position)

    def on_silent(
        self, prepared: Prepared[TranscribeJob], told: Callable[[int], object]
    ) -> None:
        """Have somebody told when a job has nothing to do."""
        self._holds[prepared.ticket].on_silent = told

    async def _prepare(self, ticket: int, job: Job) -> PromptReady:
        for _ in range(MAX_PREPARES):
            # One at a time, so that each has its own; those that compile beside others.
            async with self._preparing[compiles(job)]:
                session = await self._wait_ready()
                answer = await self._ask_to_prepare(session, ticket, job)
            match answer:
                case PromptReady():
                    return answer
                case Overflow(prompt_tokens=n_tokens, n_ctx=n_ctx, at_least=at_least):
                    raise ContextOverflowError(n_tokens, n_ctx, at_least=at_least)
                case Refused(reason=reason):
                    raise InvalidRequestError(reason)
                case Failed(reason=reason):
                    raise InternalError(reason)
                case WorkerDiedError():
                    continue
                case _:
                    raise InternalError("the worker answered out of turn")
        raise BackendUnavailableError(
            f"the worker died {MAX_PREPARES} times while this prompt was prepared"
        )

    async def _ask_to_prepare(
        self, session: Session, ticket: int, job: Job
    ) -> Answer | WorkerDiedError:
        within_s = self._prepare_timeout_s
        try:
            await session.finish_preparing(within_s, compiling=compiles(job))
            box = session.open(ticket)
            self._hand_over(session, ticket, job)
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

    def _hand_over(self, session: Session, ticket: int, job: Job) -> None:
        """Give a worker a job with its media, and with what has come of them since."""
        try:
            session.post(Prepare(ticket=ticket, job=_shortened(job)), self._fds[ticket])
        except OSError as error:
            raise BackendUnavailableError(
                f"the media cannot be passed on: {error.strerror}"
            ) from error
        if appended := self._appended.get(ticket):
            session.post(appended)

    @asynccontextmanager
    async def generate(
        self, prepared: Prepared[GenerateJob]
    ) -> AsyncIterator[EventStream[TokenEvent]]:
        """Run a prepared job."""
        async with self._running(prepared) as box:
            yield TextStream(box, prepared, self._marker_tokens)

    @asynccontextmanager
    async def generate_v2(
        self, prepared: Prepared[GenerateJob]
    ) -> AsyncIterator[EventStream[TokenEventV2]]:
        """Run a prepared job; thoughts and calls are told apart from text."""
        async with self._running(prepared) as box:
            dialect = DIALECTS.get(self.capabilities.dialect, GENERIC)
            yield BlockStream(box, prepared, dialect)

    @asynccontextmanager
    async def transcribe(
        self, prepared: Prepared[TranscribeJob]
    ) -> AsyncIterator[EventStream[TokenEventV2]]:
        """Run a prepared job."""
        async with self._running(prepared) as box:
            yield SpeechStream(box, prepared)

    async def embed(self, prepared: Prepared[EmbedJob]) -> EmbedResult:
        """Run a prepared job."""
        async with self._running(prepared) as box:
            parts = await _until_last(box)
            return EmbedResult(
                embeddings=[each.embeddings for each in parts],
                dimensions=parts[-1].dimensions,
                input_tokens=prepared.input_tokens,
            )

    async def rerank(self, prepared: Prepared[RerankJob]) -> RerankResult:
        """Run a prepared job."""
        async with self._running(prepared) as box:
            match await box.take():
                case [Scored(scores=scores)] if len(scores) == len(
                    prepared.job.documents
                ):
                    return RerankResult(
                        scores=scores, input_tokens=prepared.input_tokens
                    )
                case [Failed(reason=reason)]:
                    raise InternalError(reason)
                case _:
                    raise InternalError("the worker answered documents with no scores")

    @asynccontextmanager
    async def _running(self, prepared: Prepared[J]) -> AsyncIterator[Mailbox[Answer]]:
        """Start a job, preparing it anew if the worker that did is gone."""
        ticket, hold = prepared.ticket, self._holds[prepared.ticket]
        await hold.until_wanted()
        while (session := self._session) is None or not session.knows(ticket):
            await self._prepare(ticket, prepared.job)
            await hold.until_wanted()
        box = session.open(ticket)
        hold.began(session)
        session.run(ticket, hold)
        try:
            yield box
        finally:
            hold.ended()
            session.close(ticket)


async def _until_last(box: Mailbox[Answer]) -> list[Embedded]:
    """Collect vectors up to the last of them."""
    parts: list[Embedded] = []
    n_bytes = 0
    while not (parts and parts[-1].is_last):
        for answer in await box.take():
            match answer:
                case Embedded():
                    parts.append(answer)
                    n_bytes += len(answer.embeddings)
                case Failed(reason=reason):
                    raise InternalError(reason)
                case _:
                    raise InternalError("the worker answered texts with no vectors")
        if n_bytes > MAX_FRAME_BYTES:
            raise InternalError("the worker gave more vectors than any answer has")
    return parts


def _shortened(job: Job) -> Job:
    """Leave out what a job's prompt was written of."""
    if isinstance(job, GenerateJob) and job.written is not None:
        return replace(job, turns=[], tools=(), content=UNSET)
    return job
