"""One worker from its start to its end: messages to it, answers sorted by job."""

from collections.abc import Callable
from typing import NamedTuple, NoReturn

import trio

from inferd.backend import Reuse
from inferd.engine.conduct import Conduct, LieError, SessionOverError
from inferd.engine.inbox import Inbox
from inferd.engine.ledger import Allot
from inferd.engine.mailbox import Mailbox
from inferd.engine.outbox import Outbox, OutboxFullError
from inferd.engine.process import WorkerProcess, describe_exit
from inferd.engine.pulse import Pulse, no_word
from inferd.errors import BackendUnavailableError
from inferd.fit import Demand
from inferd.ipc import (
    Boxed,
    Drop,
    Embedded,
    Ended,
    Failed,
    FromWorker,
    Load,
    Loaded,
    LoadFailed,
    Loading,
    Overflow,
    Prepare,
    PromptReady,
    Refused,
    Run,
    Scored,
    Step,
    ToWorker,
    Variant,
)
from inferd.limits import LOAD_MESSAGES
from inferd.pipe import BrokenLinkError
from inferd.wire.responses import Guesses, Logprob

Report = Callable[[Loading], None]


class Prefilled(NamedTuple):
    """How far a job's prompt is: tokens read."""

    processed: int


Told = Reuse | Guesses | Prefilled | Logprob | bytes
Answer = PromptReady | Refused | Overflow | Told | Ended | Embedded | Scored | Failed


class WorkerDiedError(BackendUnavailableError):
    """The worker is gone; so is every job it had."""


class Session:
    """Talks to one worker process.

    First ``load``, once; then ``serve`` for as long as it lives, while others ``open``
    jobs and ``post`` messages.
    """

    def __init__(self, process: WorkerProcess) -> None:
        self._process = process
        self._boxes: dict[int, Mailbox[Answer]] = {}
        self._finished: set[int] = set()
        self._conduct = Conduct()
        self._inbox = Inbox(process.stream)
        self._outbox = Outbox(process.stream)
        self._over: str | None = None
        self._prepared = trio.Event()
        self._prepared.set()
        self._preparing: int | None = None
        self._pulse = Pulse(trio.current_time())
        self._hung: str | None = None
        self.has_served = False
        self.variant: Variant | None = None
        self.boxed: Boxed | None = None

    # --- jobs -------------------------------------------------------------------

    def open(self, ticket: int) -> Mailbox[Answer]:
        """Begin to collect the answers to a job; all it gets from a dead worker is that."""
        box = self._boxes.setdefault(ticket, Mailbox())
        self._conduct.opened(ticket)
        if self._over is not None:
            box.fail(WorkerDiedError(self._over))
        return box

    def knows(self, ticket: int) -> bool:
        """Whether a job is open here."""
        return ticket in self._boxes

    def close(self, ticket: int) -> None:
        """Have the worker forget a job that is open here, unless it has finished it."""
        if self._boxes.pop(ticket, None) is None:
            return
        self._conduct.closed(ticket)
        self._pulse.is_over(ticket)
        if ticket in self._finished:
            self._finished.remove(ticket)
        else:
            self.post(Drop(ticket=ticket))

    def post(self, message: ToWorker) -> None:
        """Send a message; a worker that never reads is ended."""
        if isinstance(message, Prepare):
            self._prepared = trio.Event()
            self._preparing = message.ticket
            self._conduct.asked(message.ticket, message.job)
        elif isinstance(message, Run):
            self._pulse.began(message.ticket, trio.current_time())
        try:
            self._outbox.post(message)
        except OutboxFullError:
            self._process.kill()

    async def finish_preparing(self, within_s: float) -> None:
        """Wait until the worker has answered a prepare that nobody waits for any more.

        Raises:
            WorkerDiedError: it did not in time, and was ended.
        """
        with trio.move_on_after(within_s):
            await self._prepared.wait()
            return
        self._process.kill()
        raise WorkerDiedError("preparing another prompt took too long")

    def kill(self) -> None:
        """End the worker: it hangs."""
        self._process.kill()

    def fail_all(self, reason: str) -> None:
        """Tell every open job why there is no worker any more."""
        self._over = reason
        for box in self._boxes.values():
            box.fail(WorkerDiedError(reason))
        self._prepared.set()
        self._boxes.clear()

    # --- the worker ---------------------------------------------------------------

    async def load(
        self, message: Load, report: Report, allot: Allot, *, silence_s: float
    ) -> Loaded:
        """Have the worker load; tell how far it is.

        Raises:
            SessionOverError: it failed, died or fell silent.
            UnfitError: it would take more memory than there is.
        """
        if not self._process.is_told:
            self._outbox.post(message)
        return await self._hear(report, allot, silence_s)

    async def _hear(self, report: Report, allot: Allot, silence_s: float) -> Loaded:
        has_share = False
        for _ in range(LOAD_MESSAGES):
            match await self._receive_within(silence_s):
                case Loading() as loading:
                    report(loading)
                case Variant() as variant:
                    self.variant = variant
                case Boxed() as boxed:
                    self.boxed = boxed
                case Demand() as demand if not has_share:
                    has_share = True
                    self._outbox.post(await allot(demand))
                case LoadFailed(reason=reason, whole=whole):
                    self._process.kill()
                    await self._process.wait()
                    complaint = self._process.complaint
                    raise SessionOverError(reason, complaint, whole=whole)
                case Loaded() as loaded:
                    self._process.serves_clients()
                    self._conduct.loaded(loaded.capabilities.n_ctx)
                    return loaded
                case other:
                    raise LieError(f"{type(other).__name__} out of turn")
        raise LieError("it says much and gets nowhere")

    async def serve(self, *, silence_s: float) -> NoReturn:
        """Carry messages both ways until the worker is gone.

        Raises:
            SessionOverError: always, in the end.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._outbox.drain)
            nursery.start_soon(self._watch, silence_s)
            over = await self._sort_all()
            nursery.cancel_scope.cancel()
        raise over

    async def _sort_all(self) -> SessionOverError:
        try:
            while True:
                self._sort_received()
                await self._read()
        except SessionOverError as error:
            return error

    def _sort_received(self) -> None:
        """Sort the messages that are whole: half of one is still silence."""
        while (message := self._next_received()) is not None:
            now = trio.current_time()
            self._conduct.heard(message, now)
            self._pulse.heard(message, now)
            self._sort(message)

    async def _watch(self, silence_s: float) -> None:
        self._hung = await self._pulse.run_out(silence_s)
        self._process.kill()

    def _sort(self, message: FromWorker) -> None:
        match message:
            case Step():
                self._sort_step(message)
            case Embedded() | Scored():
                self._sort_result(message)
            case Failed():
                if message.ticket == self._preparing:  # else it was a run that failed
                    self._prepared.set()
                self._put_last(message.ticket, message)
            case PromptReady() | Refused() | Overflow():
                self._prepared.set()
                self._put(message.ticket, message)
            case _:
                pass  # a sign of life; anything else was refused before

    def _sort_step(self, step: Step) -> None:
        for started in step.started:
            self._put(started.ticket, started.reuse)
        for ticket, n_tokens in step.prefilled:
            self._put(ticket, Prefilled(n_tokens))
        for ticket, guesses in step.guessed:
            self._put(ticket, guesses)
        logprobs = list(step.logprobs)
        for ticket, piece in step.pieces:
            if logprobs and logprobs[0][0] == ticket:
                self._put(*logprobs.pop(0))
            self._put(ticket, piece)
        for end in step.ended:
            self._finish(end.ticket, end)

    def _sort_result(self, result: Embedded | Scored) -> None:
        if isinstance(result, Scored) or result.is_last:
            self._finish(result.ticket, result)
        else:
            self._put(result.ticket, result)

    def _finish(self, ticket: int, answer: Ended | Embedded | Scored) -> None:
        self.has_served = True
        if ticket in self._boxes:
            self._finished.add(ticket)
        self._put_last(ticket, answer)

    def _put(self, ticket: int, answer: Answer) -> None:
        if box := self._boxes.get(ticket):  # dropped jobs may still have answers coming
            box.put(answer)

    def _put_last(self, ticket: int, answer: Answer) -> None:
        if box := self._boxes.get(ticket):
            box.put_last(answer)

    async def _receive_within(self, silence_s: float) -> FromWorker:
        try:
            with trio.fail_after(silence_s):
                await self._outbox.flush()  # nobody drains it before there are jobs
                return await self._receive()
        except trio.TooSlowError:
            self._process.kill()
            raise SessionOverError(no_word(silence_s)) from None

    async def _receive(self) -> FromWorker:
        while (message := self._next_received()) is None:
            await self._read()
        return message

    def _next_received(self) -> FromWorker | None:
        try:
            return self._inbox.next_message()
        except BrokenLinkError as error:
            self._process.kill()
            raise LieError(str(error)) from error

    async def _read(self) -> None:
        if await self._inbox.read():
            return
        self._process.kill()  # it closed its pipe: whatever it does now, it is no worker
        code = await self._process.wait()
        raise SessionOverError(
            self._hung or describe_exit(code), self._process.complaint
        )
