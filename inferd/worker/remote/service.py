"""The worker's tasks: one reads messages, and one for each job asks the remote."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from typing import Generic, TypeVar

import trio

from inferd.backend.job import GenerateJob, Job
from inferd.config.kinds.remote import RemoteSettings
from inferd.config.kinds.remote_limits import (
    LAST_READ_S,
    PROMPT_BYTES_PER_TOKEN,
    STEP_PIECES,
    TRIAL_S,
)
from inferd.ipc.worker import (
    Availability,
    Drop,
    Failed,
    FromWorker,
    Heartbeat,
    Prepare,
    PromptReady,
    ReceivedByWorker,
    Refused,
    Run,
    Step,
)
from inferd.worker.backend import RefusedError
from inferd.worker.channel import close_fds
from inferd.worker.remote.api import RemoteApi
from inferd.worker.remote.breaker import Breaker
from inferd.worker.remote.channel import AsyncChannel
from inferd.worker.remote.exchange import RemoteConnections
from inferd.worker.remote.failure import RemoteError

S = TypeVar("S", bound=RemoteSettings)


class _Question:
    """A job that is prepared, and may run."""

    def __init__(self, job: GenerateJob, body: bytes, n_ctx: int | None) -> None:
        self.job = job
        self.body = body
        estimate = -(-len(body) // PROMPT_BYTES_PER_TOKEN)
        # an estimate refuses nothing: whether the prompt fits, the remote says
        self.prompt_tokens = estimate if n_ctx is None else min(estimate, n_ctx)
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
        self._breaker = Breaker()
        self._reason = ""
        self._opened = trio.Event()

    async def serve(self) -> None:
        """Serve until the daemon closes its end."""
        exchange = self._connect()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._beat)
            nursery.start_soon(self._report_suspensions)
            async for message, fds in self._channel.receive_all():
                close_fds(fds)
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
                await self._channel.send(self._prepare(ticket, job))
            case Run(ticket=ticket) if question := self._questions.get(ticket):
                self._running.add(ticket)
                nursery.start_soon(self._run, ticket, question, exchange)
            case Drop(ticket=ticket):
                if (question := self._questions.pop(ticket, None)) is not None:
                    question.scope.cancel()
            case _:
                pass  # a job that is to be paused goes on, and none has media that grow

    def _prepare(self, ticket: int, job: Job) -> PromptReady | Refused | Failed:
        if not isinstance(job, GenerateJob):
            return Failed(ticket=ticket, reason="not what this backend can do")
        try:
            body = self._api.write_request(self._settings, job)
        except RefusedError as error:
            return Refused(ticket=ticket, reason=str(error))
        question = _Question(job, body, self._settings.n_ctx)
        self._questions[ticket] = question
        return PromptReady(ticket=ticket, prompt_tokens=question.prompt_tokens)

    async def _run(
        self, ticket: int, question: _Question, exchange: RemoteConnections
    ) -> None:
        try:
            with question.scope:
                await self._try(ticket, question, exchange)
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
            failed = error.message(ticket, self._key)
            if not error.counts:
                await self._close_breaker()
            elif self._breaker.failed(ticket, trio.current_time()):
                self._reason = failed.reason
                self._opened.set()
            await self._end(ticket, failed)
        else:
            await self._close_breaker()

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
            await self._channel.send(Availability(unavailable=self._reason))
            await trio.sleep(self._breaker.open_for_s(trio.current_time()))
            await self._channel.send(Availability())

    async def _answer(
        self, ticket: int, question: _Question, exchange: RemoteConnections
    ) -> None:
        reader = self._api.make_reader(
            self._settings, ticket, question.job, question.prompt_tokens
        )
        async with (
            exchange.stream_events(self._api.chat_path, question.body) as (
                events,
                deadline,
            ),
            aclosing(events),
        ):
            async for data in events:
                n_before = reader.n_pieces
                pieces = reader.read(data)
                if reader.n_pieces > n_before:
                    deadline.token_received()
                for start in range(0, len(pieces), STEP_PIECES):
                    batch = pieces[start : start + STEP_PIECES]
                    await self._channel.send(
                        Step(pieces=[(ticket, piece) for piece in batch])
                    )
                if reader.is_over:
                    break
            pieces, ended = reader.finish()
            await self._end(
                ticket,
                Step(pieces=[(ticket, piece) for piece in pieces], ended=[ended]),
            )
            await _read_to_end(events)

    async def _end(self, ticket: int, message: FromWorker) -> None:
        """Send the end of a job, unless it was dropped meanwhile, or has ended."""
        if self._questions.pop(ticket, None) is not None:
            await self._channel.send(message)

    async def _beat(self) -> None:
        """Show signs of life, and that jobs are waited for: the remote's bounds end those."""
        while True:
            await trio.sleep(self._heartbeat_s)
            await self._channel.send(Step(n_read=1) if self._running else Heartbeat())


async def _read_to_end(events: AsyncGenerator[bytes, None]) -> None:
    """Read what follows the end of an answer, so that its connection serves the next one.

    A remote that sends more than nothing, or not at once, loses it.
    """
    with trio.move_on_after(LAST_READ_S), suppress(RemoteError):
        await anext(events, None)
