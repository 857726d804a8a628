"""One worker from its start to its end: messages to it, answers sorted by job."""

from collections.abc import Callable, Sequence
from typing import NoReturn

import trio

from inferd.engine.answers import Answer, Answers, WorkerDiedError
from inferd.engine.conduct import Conduct, LieError, SessionOverError
from inferd.engine.inbox import Inbox
from inferd.engine.ledger import Allot
from inferd.engine.mailbox import Mailbox
from inferd.engine.outbox import Outbox, OutboxFullError
from inferd.engine.preparer import Preparer
from inferd.engine.process import WorkerProcess, describe_exit
from inferd.engine.pulse import Pulse, no_word
from inferd.fit import Demand
from inferd.ipc import (
    Append,
    Boxed,
    Drop,
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
    Spell,
    Spelt,
    ToWorker,
    Variant,
)
from inferd.job import TranscribeJob, compiles
from inferd.limits import LOAD_MESSAGES
from inferd.pipe import BrokenLinkError

Report = Callable[[Loading], None]


class Session:
    """Talks to one worker process.

    First ``load``, once; then ``serve`` for as long as it lives, while others ``open``
    jobs and ``post`` messages.
    """

    def __init__(self, process: WorkerProcess) -> None:
        self._process = process
        self._answers = Answers()
        self._conduct = Conduct()
        self._inbox = Inbox(process.stream)
        self._outbox = Outbox(process.stream)
        self._preparing: dict[int, bool] = {}  # whether each compiles something
        self._prepared = trio.lowlevel.ParkingLot()
        self._pulse = Pulse(trio.current_time())
        self._hung: str | None = None
        self._words: bytes | None = None
        self._is_spelt = trio.Event()
        self._has_asked_words = False
        self.preparer: Preparer | None = None
        """What writes prompts that are not plain, where the worker reads any."""
        self.variant: Variant | None = None
        self.boxed: Boxed | None = None

    @property
    def has_served(self) -> bool:
        """Whether the worker has brought any job to its end."""
        return self._answers.has_served

    # --- jobs -------------------------------------------------------------------

    def open(self, ticket: int) -> Mailbox[Answer]:
        """Begin to collect the answers to a job; all it gets from a dead worker is that."""
        self._conduct.opened(ticket)
        return self._answers.open(ticket)

    def knows(self, ticket: int) -> bool:
        """Whether a job is open here."""
        return ticket in self._answers

    def close(self, ticket: int) -> None:
        """Have the worker forget a job that is open here, unless it has finished it."""
        if ticket not in self._answers:
            return
        self._conduct.closed(ticket)
        self._pulse.is_over(ticket)
        if not self._answers.close(ticket):
            self.post(Drop(ticket=ticket))

    def post(self, message: ToWorker, fds: Sequence[int] = ()) -> None:
        """Send a message, with descriptors; a worker that never reads is ended.

        Raises:
            OSError: there are no more descriptors to be had; nothing was sent.
        """
        try:
            self._outbox.post(message, fds)
        except OutboxFullError:
            self._process.kill()
        self._note(message)

    def _note(self, message: ToWorker) -> None:
        match message:
            case Prepare(ticket=ticket, job=job):
                self._preparing[ticket] = compiles(job)
                self._conduct.asked(ticket, job)
                if isinstance(job, TranscribeJob) and job.audio.is_open:
                    self._pulse.asked(ticket, job.audio)
            case Run(ticket=ticket):
                self._pulse.began(ticket, trio.current_time())
            case Append(ticket=ticket, n_bytes=n_bytes, is_last=is_last):
                now = trio.current_time()
                self._conduct.appended(ticket, n_bytes)
                self._pulse.appended(ticket, n_bytes, now, is_last=is_last)
            case _:
                pass

    async def words(self) -> bytes:
        """Give the vocabulary, which the worker is asked for once.

        Raises:
            WorkerDiedError: it is gone.
        """
        if not self._has_asked_words:
            self._has_asked_words = True
            self.post(Spell())
        await self._is_spelt.wait()
        if self._words is None:
            raise WorkerDiedError("the worker is gone")
        return self._words

    async def finish_preparing(self, within_s: float, *, compiling: bool) -> None:
        """Wait until the worker has answered a prepare that nobody waits for any more.

        Args:
            within_s: seconds that it may take.
            compiling: whether it is one that compiles something: there are two at a time.

        Raises:
            WorkerDiedError: it did not in time, and was ended.
        """
        with trio.move_on_after(within_s):
            while compiling in self._preparing.values():
                await self._prepared.park()
            await trio.lowlevel.checkpoint()
            return
        self._process.kill()
        raise WorkerDiedError("preparing another prompt took too long")

    def kill(self) -> None:
        """End the worker: it hangs."""
        self._process.kill()

    def fail_all(self, reason: str) -> None:
        """Tell every open job why there is no worker any more."""
        self._answers.fail_all(reason)
        self._outbox.close()
        self._preparing.clear()
        self._prepared.unpark_all()
        self._is_spelt.set()

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
            if isinstance(message, Spelt):
                self._take_words(message)
                continue
            now = trio.current_time()
            self._conduct.heard(message, now)
            self._pulse.heard(message, now)
            self._sort(message)

    def _take_words(self, message: Spelt) -> None:
        if not self._has_asked_words or self._words is not None:
            raise LieError("a vocabulary that it was not asked")
        self._words = message.words
        self._is_spelt.set()

    async def _watch(self, silence_s: float) -> None:
        self._hung = await self._pulse.run_out(silence_s)
        self._process.kill()

    def _sort(self, message: FromWorker) -> None:
        match message:
            case (
                PromptReady(ticket=ticket)
                | Refused(ticket=ticket)
                | Overflow(ticket=ticket)
                | Failed(ticket=ticket)  # of one that runs, it is none of these
            ):
                self._preparing.pop(ticket, None)
                self._prepared.unpark_all()
            case _:
                pass
        self._answers.sort(message)

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
