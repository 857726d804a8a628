"""The session with one worker process: load, send messages, dispatch what it sends."""

from collections.abc import Callable, Sequence
from typing import NoReturn

import trio

from inferd.backend.job import TranscribeJob, needs_compile
from inferd.engine.channel.demultiplexer import (
    Demultiplexer,
    JobMessage,
    WorkerDiedError,
)
from inferd.engine.channel.result_queue import ResultQueue
from inferd.engine.channel.run_control import RunControl
from inferd.engine.channel.transport import (
    MessageReader,
    MessageWriter,
    SendQueueFullError,
)
from inferd.engine.channel.validator import (
    MessageValidator,
    ProtocolViolationError,
    SessionEndedError,
)
from inferd.engine.dispatcher import Dispatcher
from inferd.engine.prepare.preparer import Preparer
from inferd.engine.prepare.token_table import TokenTableRequest
from inferd.engine.supervisor.process import WorkerProcess, describe_exit
from inferd.engine.supervisor.watchdog import Watchdog, silence_reason
from inferd.ipc.encoding import MalformedMessageError
from inferd.ipc.worker import (
    Append,
    Availability,
    CpuVariant,
    Drop,
    FromWorker,
    Load,
    Loaded,
    LoadFailed,
    Loading,
    Pause,
    Prepare,
    Resume,
    Run,
    SandboxReport,
    TokenTableReply,
    ToWorker,
)
from inferd.limits.engine import LOAD_MESSAGES
from inferd.memory.coordinator import RequestShare
from inferd.memory.plan import MemoryDemand

OnLoading = Callable[[Loading], None]


class WorkerSession:
    """The message exchange with one worker process.

    Call ``load`` once, then ``serve`` for as long as the worker lives, while other tasks
    ``open`` jobs and ``send`` messages.
    """

    def __init__(self, process: WorkerProcess) -> None:
        self._process = process
        self._demux = Demultiplexer()
        self._controls: dict[int, RunControl] = {}
        self._validator = MessageValidator()
        self._reader = MessageReader(process.stream)
        self._writer = MessageWriter(process.stream)
        self._preparing: dict[int, bool] = {}  # whether a ticket's job is to compile
        self._prepared = trio.lowlevel.ParkingLot()
        self._watchdog = Watchdog(trio.current_time())
        self._dispatcher = Dispatcher(
            self._demux, self._watchdog, self._controls, self._prepare_replied
        )
        self._hung: str | None = None
        self.token_table = TokenTableRequest(self.send)
        self.preparer: Preparer | None = None
        """Renders prompts that are not plain; ``None`` if the worker takes no prompts."""
        self.variant: CpuVariant | None = None
        self.sandbox_report: SandboxReport | None = None
        self.on_availability: Callable[[Availability], object] = _ignore
        """Called when the worker's remote engine is not asked any more, or is again."""
        self.is_unloaded = False
        """Whether the worker was ended on purpose, which is no failed attempt of a job."""

    @property
    def has_served(self) -> bool:
        """Whether the worker has finished any job."""
        return self._demux.has_served

    # --- jobs -------------------------------------------------------------------

    def open(self, ticket: int) -> ResultQueue[JobMessage]:
        """Open a job's result queue; it fails at once if the worker has died."""
        self._validator.job_opened(ticket)
        return self._demux.open(ticket)

    def has_job(self, ticket: int) -> bool:
        """Tell whether a job is open in this session."""
        return ticket in self._demux

    def close(self, ticket: int) -> None:
        """Close a job if it is open; the worker drops it unless it has finished it."""
        if ticket not in self._demux:
            return
        self._validator.job_closed(ticket)
        self._watchdog.job_ended(ticket)
        self._controls.pop(ticket, None)
        if not self._demux.close(ticket):
            self.send(Drop(ticket=ticket))

    def run(self, ticket: int, control: RunControl) -> None:
        """Have the worker run a job that is open here.

        Args:
            ticket: the job's number.
            control: notified when the job is paused, or needs more audio.
        """
        self._controls[ticket] = control
        self.send(Run(ticket=ticket))

    def put_queue_position(self, ticket: int, position: int) -> None:
        """Put a paused job's queue position among its results, if the job is open here."""
        self._demux.put_queue_position(ticket, position)

    def send(self, message: ToWorker, fds: Sequence[int] = ()) -> None:
        """Send a message, with descriptors; kill a worker that does not read.

        Raises:
            OSError: the process is out of descriptors; nothing was sent.
        """
        try:
            self._writer.send(message, fds)
        except SendQueueFullError:
            self._process.kill()
        self._track_sent(message)

    def _track_sent(self, message: ToWorker) -> None:
        match message:
            case Prepare(ticket=ticket, job=job):
                self._preparing[ticket] = needs_compile(job)
                self._validator.prepare_sent(ticket, job)
                if isinstance(job, TranscribeJob) and job.audio.is_open:
                    self._watchdog.track_audio(ticket, job.audio)
            case Run(ticket=ticket) | Resume(ticket=ticket):
                self._watchdog.job_started(ticket, trio.current_time())
            case Pause(ticket=ticket):
                self._validator.pause_sent(ticket)
            case Append(ticket=ticket, n_bytes=n_bytes, is_last=is_last):
                now = trio.current_time()
                self._validator.appended(ticket, n_bytes)
                self._watchdog.appended(ticket, n_bytes, now, is_last=is_last)
            case _:
                pass

    async def finish_preparing(self, within_s: float, *, compiling: bool) -> None:
        """Wait for the reply to an earlier prepare that was abandoned.

        Args:
            within_s: seconds that the reply may take.
            compiling: which prepares to wait for: those that compile a grammar, or the
                others. One of each kind runs at a time.

        Raises:
            WorkerDiedError: the reply did not come in time; the worker was killed.
        """
        with trio.move_on_after(within_s):
            while compiling in self._preparing.values():
                await self._prepared.park()
            await trio.lowlevel.checkpoint()
            return
        self._process.kill()
        raise WorkerDiedError("preparing another prompt took too long")

    def kill(self) -> None:
        """Kill the worker because it hangs."""
        self._process.kill()

    def fail_all(self, reason: str) -> None:
        """Fail all open jobs with the reason why the worker is gone."""
        self._demux.fail_all(reason)
        self._writer.close()
        self._preparing.clear()
        self._prepared.unpark_all()
        self.token_table.worker_gone()

    # --- the worker ---------------------------------------------------------------

    async def load(
        self,
        message: Load,
        on_loading: OnLoading,
        request_share: RequestShare,
        *,
        silence_s: float,
    ) -> Loaded:
        """Have the worker load its model; report the phases, and grant it memory.

        Raises:
            SessionEndedError: the worker failed, died or was silent.
            InsufficientMemoryError: the model needs more memory than there is.
        """
        if not self._process.load_sent:
            self._writer.send(message)
        return await self._wait_loaded(on_loading, request_share, silence_s)

    async def _wait_loaded(
        self, on_loading: OnLoading, request_share: RequestShare, silence_s: float
    ) -> Loaded:
        has_share = False
        for _ in range(LOAD_MESSAGES):
            match await self._receive_within(silence_s):
                case Loading() as loading:
                    on_loading(loading)
                case CpuVariant() as variant:
                    self.variant = variant
                case SandboxReport() as report:
                    self.sandbox_report = report
                case MemoryDemand() as demand if not has_share:
                    has_share = True
                    self._writer.send(await request_share(demand))
                case LoadFailed() as failed:
                    self._process.kill()
                    await self._process.wait()
                    raise SessionEndedError(
                        failed.reason,
                        self._process.error_line,
                        detail=failed.detail,
                        is_broken_file=failed.is_broken_file,
                        is_changed_file=failed.is_changed_file,
                    )
                case Loaded() as loaded:
                    self._process.redact_stderr()
                    self._validator.loaded(loaded.capabilities.n_ctx)
                    return loaded
                case other:
                    raise ProtocolViolationError(f"unexpected {type(other).__name__}")
        raise ProtocolViolationError("too many messages before it was loaded")

    async def serve(self, *, silence_s: float) -> NoReturn:
        """Exchange messages until the worker is gone.

        Raises:
            SessionEndedError: always, in the end.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._writer.drain)
            nursery.start_soon(self._watch, silence_s)
            ended = await self._receive_all()
            nursery.cancel_scope.cancel()
        raise ended

    async def _receive_all(self) -> SessionEndedError:
        try:
            self._handle_received()  # what came with the last message of the load
            await self._reader.read_all(self._handle_received)
            return await self._ended()
        except SessionEndedError as error:
            return error

    def _handle_received(self) -> None:
        """Handle all complete messages; half of one counts as silence."""
        now = trio.current_time()
        while (message := self._next_received()) is not None:
            if isinstance(message, TokenTableReply):
                self.token_table.received(message)
                continue
            self._validator.validate(message, now)
            self._dispatcher.dispatch(message, now)
            if isinstance(message, Availability):
                self.on_availability(message)
        self._demux.hand_over()

    async def _watch(self, silence_s: float) -> None:
        self._hung = await self._watchdog.wait_until_hung(silence_s)
        self._process.kill()

    def _prepare_replied(self, ticket: int) -> None:
        self._preparing.pop(ticket, None)  # a running job that failed has no entry
        self._prepared.unpark_all()

    async def _receive_within(self, silence_s: float) -> FromWorker:
        try:
            with trio.fail_after(silence_s):
                await self._writer.flush()  # ``drain`` runs only in ``serve``
                return await self._receive()
        except trio.TooSlowError:
            self._process.kill()
            raise SessionEndedError(silence_reason(silence_s)) from None

    async def _receive(self) -> FromWorker:
        while (message := self._next_received()) is None:
            if not await self._reader.read():
                raise await self._ended()
        return message

    def _next_received(self) -> FromWorker | None:
        try:
            return self._reader.next_message()
        except MalformedMessageError as error:
            self._process.kill()
            raise ProtocolViolationError(str(error)) from error

    async def _ended(self) -> SessionEndedError:
        """Say why a worker that has closed its socket is of no use any more."""
        self._process.kill()
        code = await self._process.wait()
        return SessionEndedError(
            self._hung or describe_exit(code), self._process.error_line
        )


def _ignore(_availability: Availability) -> None:
    """Do nothing."""
