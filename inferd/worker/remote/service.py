"""The worker's tasks: one reads messages, and one for each job asks the remote."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from typing import Generic, TypeVar

import trio
from msgspec.structs import replace

from inferd.backend.job import GenerateJob, Job, media_of
from inferd.config.kinds.remote import RemoteSettings
from inferd.config.kinds.remote_limits import (
    DROPPED_S,
    LAST_READ_S,
    TRIAL_S,
)
from inferd.ipc.worker import (
    Availability,
    Drop,
    Ended,
    FromWorker,
    Heartbeat,
    Prepare,
    PromptReady,
    ReceivedByWorker,
    Refused,
    Run,
    Step,
)
from inferd.wire.responses import Usage
from inferd.worker.backend import RefusedError
from inferd.worker.channel import close_fds
from inferd.worker.remote.api import (
    RemoteApi,
    RemoteRequest,
    StreamReader,
)
from inferd.worker.remote.breaker import Breaker
from inferd.worker.remote.channel import AsyncChannel
from inferd.worker.remote.conversation.steps import steps_of
from inferd.worker.remote.failure import RemoteError
from inferd.worker.remote.http.exchange import RemoteConnections
from inferd.worker.remote.job_translation import (
    count_text_bytes,
    read_document,
    refuse_media,
    write_request,
)
from inferd.worker.remote.media import read_media, read_plain_media
from inferd.worker.remote.token_estimate import TokenEstimate

S = TypeVar("S", bound=RemoteSettings)


class _Question:
    """A job that is prepared, and may run."""

    def __init__(
        self, job: Job, request: RemoteRequest, *, n_bytes: int, prompt_tokens: int
    ) -> None:
        self.job = job
        self.request = request
        self.n_bytes = n_bytes
        """Bytes of text, by which tokens are estimated; 0 if there is more than text."""
        self.prompt_tokens = prompt_tokens
        self.is_answered = False
        """Whether the whole answer is there: what fails after that is no failure."""
        self.scope = trio.CancelScope()


class RemoteService(Generic[S]):
    """Serves one daemon until it goes away.

    Jobs are not paused: a remote goes on, and the daemon waits for the end of one.

    Args:
        channel: to the daemon.
        settings: of the backend.
        api: of its remote.
        connect: makes what asks the remote.
        heartbeat_s: seconds between two signs of life.
        key: left out of what clients are told.
    """

    def __init__(  # noqa: PLR0913  # the inputs of the process
        self,
        channel: AsyncChannel,
        settings: S,
        api: RemoteApi[S],
        connect: Callable[[], RemoteConnections],
        *,
        heartbeat_s: float,
        key: str,
    ) -> None:
        self._channel = channel
        self._settings = settings
        self._api = api
        self._connect = connect
        self._heartbeat_s = heartbeat_s
        self._key = key
        self._questions: dict[int, _Question] = {}
        self._running: set[int] = set()
        self._reading: set[int] = set()
        self._breaker = Breaker()
        self._reason = ""
        self._opened = trio.Event()
        self._told = trio.Event()
        """Set, and replaced, when the daemon has been told that the breaker is open."""
        self._estimate = TokenEstimate()
        self._media_readers = trio.CapacityLimiter(1)

    async def serve(self) -> None:
        """Serve until the daemon closes its end."""
        exchange = self._connect()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._beat)
            nursery.start_soon(self._report_suspensions)
            async for message, fds in self._channel.receive_all():
                if fds and isinstance(message, Prepare):
                    self._reading.add(message.ticket)
                    nursery.start_soon(self._prepare_media, message, fds)
                else:
                    await self._handle(message, nursery, exchange)
            nursery.cancel_scope.cancel()

    async def _handle(
        self,
        message: ReceivedByWorker,
        nursery: trio.Nursery,
        exchange: RemoteConnections,
    ) -> None:
        match message:
            case Prepare(ticket=ticket, job=job):
                await self._channel.send(self._prepare(ticket, job, ()))
            case Run(ticket=ticket) if question := self._questions.get(ticket):
                self._running.add(ticket)
                nursery.start_soon(self._run, ticket, question, exchange)
            case Drop(ticket=ticket):
                self._reading.discard(ticket)
                if (question := self._questions.pop(ticket, None)) is not None:
                    question.scope.cancel()
            case _:
                pass  # a job that is to be paused goes on, and none has media that grow

    async def _prepare_media(self, message: Prepare, fds: tuple[int, ...]) -> None:
        """Read the media of a job, and prepare it."""
        try:
            refuse_media(self._settings, message.job, takes_sound=self._api.takes_sound)
            read = read_plain_media if self._api.takes_plain_media else read_media
            media = await trio.to_thread.run_sync(
                read, message.job, fds, limiter=self._media_readers
            )
        except RefusedError as error:
            reply: PromptReady | Refused = Refused(
                ticket=message.ticket, reason=str(error)
            )
        else:
            reply = self._prepare(message.ticket, message.job, media)
        finally:
            close_fds(fds)
        if message.ticket not in self._reading:  # it was dropped meanwhile
            self._questions.pop(message.ticket, None)
        self._reading.discard(message.ticket)
        await self._channel.send(reply)

    def _prepare(
        self, ticket: int, job: Job, media: Sequence[bytes]
    ) -> PromptReady | Refused:
        try:
            request = write_request(self._api, self._settings, job, media)
        except RefusedError as error:
            return Refused(ticket=ticket, reason=str(error))
        n_bytes = count_text_bytes(request, job, media)
        n_tokens = len(job.input_tokens) if isinstance(job, GenerateJob) else 0
        estimate = n_tokens or self._estimate.tokens(n_bytes)
        # an estimate refuses nothing: whether the prompt fits, the remote says
        n_ctx = self._settings.n_ctx
        prompt_tokens = estimate if n_ctx is None else min(estimate, n_ctx)
        self._questions[ticket] = _Question(
            job,
            request,
            n_bytes=0 if media_of(job) or n_tokens else n_bytes,
            prompt_tokens=prompt_tokens,
        )
        return PromptReady(ticket=ticket, prompt_tokens=prompt_tokens, is_estimate=True)

    async def _run(
        self, ticket: int, question: _Question, exchange: RemoteConnections
    ) -> None:
        try:
            with question.scope:
                await self._try(ticket, question, exchange)
            if question.scope.cancelled_caught:
                await _tell_dropped(question.request, exchange)
        finally:
            self._breaker.abandoned(ticket)
            self._running.discard(ticket)
            self._questions.pop(ticket, None)

    async def _try(
        self, ticket: int, question: _Question, exchange: RemoteConnections
    ) -> None:
        """Ask the remote, unless it failed too often."""
        if not self._breaker.admits(ticket, trio.current_time()):
            await self._end(ticket, self._suspended().message(ticket, self._key))
            return
        try:
            await self._answer(ticket, question, exchange)
        except RemoteError as error:
            if not question.is_answered:
                await self._fail(ticket, error)
                return
        await self._close_breaker()

    async def _fail(self, ticket: int, error: RemoteError) -> None:
        failed = error.message(ticket, self._key)
        if not error.counts:
            await self._close_breaker()
        elif self._breaker.failed(ticket, trio.current_time()):
            self._reason = failed.reason
            told = self._told
            self._opened.set()
            await told.wait()  # who asks again after this error is routed on
        await self._end(ticket, failed)

    def _suspended(self) -> RemoteError:
        seconds = self._breaker.open_for_s(trio.current_time())
        return RemoteError(
            f"the remote failed, and is not asked for a while: {self._reason}",
            retry_after_ms=round(max(seconds, TRIAL_S) * 1000),
        )

    async def _close_breaker(self) -> None:
        """Note that the remote answers."""
        was_closed = self._breaker.is_closed
        self._breaker.succeeded()
        if not was_closed:
            await self._channel.send(Availability())

    async def _report_suspensions(self) -> None:
        """Tell the daemon when the breaker opens, and when a request may try the remote."""
        while True:
            await self._opened.wait()
            self._opened = trio.Event()
            told = self._suspended().message(0, self._key)
            await self._channel.send(
                Availability(
                    unavailable=told.reason, retry_after_ms=told.retry_after_ms or 0
                )
            )
            self._told.set()
            self._told = trio.Event()
            seconds = self._breaker.open_for_s(trio.current_time())
            with trio.move_on_after(seconds) as pause:
                await self._opened.wait()  # after a success in between
            if pause.cancelled_caught:
                await self._channel.send(Availability())

    async def _answer(
        self, ticket: int, question: _Question, exchange: RemoteConnections
    ) -> None:
        match question.job:
            case GenerateJob(max_tokens=0) as job:
                await self._count(ticket, job, question, exchange)
            case GenerateJob() as job if self._api.chat is not None:
                reader = self._api.chat.make_reader(
                    self._settings, ticket, job, question.prompt_tokens
                )
                await self._stream(ticket, question, reader, exchange)
            case _:
                await self._read_whole(ticket, question, exchange)

    async def _count(
        self,
        ticket: int,
        job: GenerateJob,
        question: _Question,
        exchange: RemoteConnections,
    ) -> None:
        """Count the tokens of a prompt that is not to be answered, or estimate them."""
        counting = self._api.counting
        request = None if counting is None else counting.write(self._settings, job)
        if counting is None or request is None:
            usage = Usage(question.prompt_tokens, 0, is_estimate=True)
        else:
            body = await _read_document(exchange, request._replace(via=job.via))
            n_tokens = counting.read(body)
            self._estimate.note(question.n_bytes, n_tokens)
            usage = Usage(n_tokens, 0)
        ended = Ended(ticket=ticket, stop_reason="length", usage=usage)
        await self._end(ticket, Step(ended=[ended]))

    async def _read_whole(
        self, ticket: int, question: _Question, exchange: RemoteConnections
    ) -> None:
        body = await _read_document(exchange, question.request)
        *messages, last = read_document(
            self._api, self._settings, ticket, question.job, body
        )
        for message in messages:
            await self._channel.send(message)
        await self._end(ticket, last)

    async def _stream(
        self,
        ticket: int,
        question: _Question,
        reader: StreamReader,
        exchange: RemoteConnections,
    ) -> None:
        request = question.request
        while request.then is not None:
            body = await _read_document(exchange, request)
            request = request.then(body)._replace(via=request.via)
            question.request = request
        async with (
            exchange.ask(request) as (parts, deadline),
            aclosing(parts),
        ):
            async for data in parts:
                n_before = reader.n_pieces
                pieces = reader.read(data)
                if reader.n_pieces > n_before:
                    deadline.token_received()
                for step in steps_of(ticket, pieces):
                    await self._channel.send(step)
                if reader.is_over:
                    break
            last, ended = reader.finish()
            if not ended.usage.is_estimate:
                self._estimate.note(question.n_bytes, ended.usage.prompt_tokens)
            *others, end = [*steps_of(ticket, last)] or [Step()]
            for step in others:
                await self._channel.send(step)
            question.is_answered = True
            await self._end(ticket, replace(end, ended=[ended]))
            await _read_to_end(parts)

    async def _end(self, ticket: int, message: FromWorker) -> None:
        """Send the end of a job, unless it was dropped meanwhile, or has ended."""
        if self._questions.pop(ticket, None) is not None:
            await self._channel.send(message)

    async def _beat(self) -> None:
        """Show signs of life, and that jobs are waited for: the remote's bounds end those."""
        while True:
            await trio.sleep(self._heartbeat_s)
            await self._channel.send(Step(n_read=1) if self._running else Heartbeat())


async def _tell_dropped(request: RemoteRequest, exchange: RemoteConnections) -> None:
    """Tell a remote that nobody waits for an answer, if it has to be told."""
    if request.when_dropped is not None:
        with trio.move_on_after(DROPPED_S), suppress(RemoteError):
            await _read_document(exchange, request.when_dropped)


async def _read_document(exchange: RemoteConnections, request: RemoteRequest) -> bytes:
    """Read an answer of one document.

    Raises:
        RemoteError: the request failed.
    """
    async with exchange.ask(request) as (parts, _), aclosing(parts):
        return b"\n".join([part async for part in parts])


async def _read_to_end(events: AsyncGenerator[bytes, None]) -> None:
    """Read what follows the end of an answer, so that its connection serves the next one.

    A remote that sends more than nothing, or not at once, loses it.

    Raises:
        RemoteError: it closed the connection in the middle of that.
    """
    with trio.move_on_after(LAST_READ_S):
        await anext(events, None)
