"""The worker's threads: one reads, two prepare, one decodes, one sends what that gives.

Only the decoding thread touches the model's context; only the reading thread receives
messages. They share queues, which the daemon's admission bounds: it sends no more jobs than
it admits.
"""

import os
import queue
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial

from inferd.backend.job import needs_compile
from inferd.ipc.worker import (
    Append,
    Drop,
    Failed,
    GetTokenTable,
    Heartbeat,
    LoadFailed,
    Pause,
    Prepare,
    PromptOverflow,
    PromptReady,
    ReceivedByWorker,
    ReceivedLoad,
    Refused,
    Resume,
    Run,
    Step,
    TokenTableReply,
)
from inferd.limits.engine import HEARTBEAT_S
from inferd.memory.plan import MemoryShare
from inferd.worker.backend import (
    LoadError,
    PreparedJob,
    PromptOverflowError,
    RefusedError,
    StepOutcome,
    WorkerBackend,
)
from inferd.worker.channel import ReceivedMessage, WorkerChannel, close_fds
from inferd.worker.step_sender import StepSender

EXIT_LOAD_FAILED = 3
EXIT_BUG = 70

_Start = tuple[int, PreparedJob]
_Command = _Start | Append | Pause | Resume | int
"""A bare number is the ticket of a job to drop."""
_ToPrepare = tuple[Prepare, tuple[int, ...]]
_NOTHING = Step()


class Runtime:
    """The threads that serve one daemon until it goes away.

    Args:
        channel: to the daemon.
        make_backend: makes the backend of a ``Load`` message.
        enter_serving: tightens the sandbox, once the model is loaded.
    """

    def __init__(
        self,
        channel: WorkerChannel,
        make_backend: Callable[[ReceivedLoad], WorkerBackend],
        enter_serving: Callable[[], None] = lambda: None,
    ) -> None:
        self._channel = channel
        self._make_backend = make_backend
        self._enter_serving = enter_serving
        self._to_prepare: queue.SimpleQueue[_ToPrepare] = queue.SimpleQueue()
        self._to_compile: queue.SimpleQueue[_ToPrepare] = queue.SimpleQueue()
        self._commands: queue.SimpleQueue[_Command] = queue.SimpleQueue()
        self._prepared: dict[int, PreparedJob | None] = {}
        self._appended: dict[
            int, Append
        ] = {}  # the last of each job, until it is applied
        self._lock = threading.Lock()
        self._sender = StepSender(channel.send)
        self._sent_at = time.monotonic()
        self._heartbeat_s = HEARTBEAT_S

    def serve(self) -> int:
        """Load the model, then serve; return the exit code."""
        match self._channel.receive():
            case ReceivedMessage(ReceivedLoad() as load):
                pass
            case _:
                return EXIT_BUG
        self._heartbeat_s = load.heartbeat_s
        try:
            backend = self._make_backend(load)
            if not load.is_outline:
                backend.verify(self._channel.send)
            share = self._request_memory(backend)
            if load.is_outline:
                self._channel.send(backend.outline(self._channel.send, share))
                return 0
            loaded = backend.load(self._channel.send, share)
            self._enter_serving()
        except LoadError as error:
            self._channel.send(
                LoadFailed(
                    reason=error.reason,
                    detail=error.detail,
                    is_broken_file=error.is_broken_file,
                    is_changed_file=error.is_changed_file,
                )
            )
            return EXIT_LOAD_FAILED
        self._channel.send(loaded)
        self._start_threads(backend)
        try:
            self._decode_all(backend)
        finally:
            self._sender.flush()
        return 0

    def _request_memory(self, backend: WorkerBackend) -> MemoryShare | None:
        demand = backend.predict(self._channel.send)
        if demand is None:
            return None
        self._channel.send(demand)
        match self._channel.receive():
            case ReceivedMessage(MemoryShare() as share):
                return share
            case None:
                os._exit(0)  # the daemon is gone
            case _:
                raise RuntimeError("expected a MemoryShare")

    def _start_threads(self, backend: WorkerBackend) -> None:
        for name, pending in (
            ("prepare", self._to_prepare),
            ("compile", self._to_compile),
        ):
            self._start_thread(partial(self._prepare_all, backend, pending), name)
        self._start_thread(self._sender.send_all, "send")
        self._start_thread(lambda: self._read_all(backend), "read")

    def _start_thread(self, work: Callable[[], None], name: str) -> None:
        def run() -> None:
            try:
                work()
            except BaseException:  # noqa: BLE001  # a worker must not go on without a thread
                traceback.print_exc()
                os._exit(EXIT_BUG)

        threading.Thread(target=run, name=name, daemon=True).start()

    # --- the reading thread -----------------------------------------------------

    def _read_all(self, backend: WorkerBackend) -> None:
        while (received := self._channel.receive()) is not None:
            self._dispatch(backend, *received)
        os._exit(0)  # the daemon is gone, and a decode may be under way

    def _dispatch(
        self, backend: WorkerBackend, message: ReceivedByWorker, fds: tuple[int, ...]
    ) -> None:
        """Pass a message on to the thread that handles it."""
        match message:
            case Prepare(ticket=ticket):
                with self._lock:
                    self._prepared[ticket] = None
                is_slow = needs_compile(message.job)
                pending = self._to_compile if is_slow else self._to_prepare
                pending.put((message, fds))
            case Run(ticket=ticket):
                self._start(ticket)
            case Append(ticket=ticket):
                self._append(ticket, message)
            case Pause() | Resume():
                self._commands.put(message)
            case Drop(ticket=ticket):
                self._forget(ticket)
                self._commands.put(ticket)
                backend.interrupt(ticket)
            case GetTokenTable():
                self._start_thread(
                    lambda: self._send_token_table(backend), "token_table"
                )
            case ReceivedLoad() | MemoryShare():
                raise RuntimeError("loaded twice")

    def _send_token_table(self, backend: WorkerBackend) -> None:
        self._channel.send(TokenTableReply(token_table=backend.token_table()))

    def _start(self, ticket: int) -> None:
        with self._lock:
            prepared = self._prepared.pop(ticket, None)
        if prepared is None:
            raise RuntimeError(f"job {ticket} was never prepared")
        self._commands.put((ticket, prepared))
        if appended := self._appended.get(ticket):
            self._commands.put(appended)

    def _append(self, ticket: int, message: Append) -> None:
        """Note an append; the last one has the total length.

        So at most one per job waits for the decoding thread, however many a client sends
        while that computes.
        """
        with self._lock:
            is_queued = ticket in self._prepared or ticket in self._appended
            self._appended[ticket] = message
        if not is_queued:
            self._commands.put(message)

    def _forget(self, ticket: int) -> None:
        with self._lock:
            prepared = self._prepared.pop(ticket, None)
            self._appended.pop(ticket, None)
        if prepared is not None:
            prepared.close()

    # --- the preparing threads: compiling a grammar delays no other job ---------------

    def _prepare_all(
        self, backend: WorkerBackend, pending: queue.SimpleQueue[_ToPrepare]
    ) -> None:
        while True:
            self._prepare(backend, *pending.get())

    def _prepare(
        self, backend: WorkerBackend, message: Prepare, fds: tuple[int, ...]
    ) -> None:
        """Answer every prepare, even of a dropped job: the daemon waits for the reply."""
        reply = self._reply_to(backend, message, fds)
        if not isinstance(reply, PromptReady):
            close_fds(fds)
        self._channel.send(reply)

    def _reply_to(
        self, backend: WorkerBackend, message: Prepare, fds: tuple[int, ...]
    ) -> PromptReady | Refused | PromptOverflow | Failed:
        ticket = message.ticket
        try:
            prepared = backend.prepare(message.job, fds)
        except PromptOverflowError as error:
            return PromptOverflow(
                ticket=ticket,
                prompt_tokens=error.prompt_tokens,
                n_ctx=error.n_ctx,
                at_least=error.at_least,
            )
        except RefusedError as error:
            return Refused(ticket=ticket, reason=str(error))
        except Exception as error:  # noqa: BLE001  # one failed job must not end the others
            traceback.print_exc()
            name = type(error).__name__
            return Failed(ticket=ticket, reason=f"preparing it failed with {name}")
        reply = PromptReady(
            ticket=ticket,
            prompt_tokens=prepared.prompt_tokens,
            open_thought=prepared.open_thought,
        )
        self._store(ticket, prepared)
        return reply

    def _store(self, ticket: int, prepared: PreparedJob) -> None:
        with self._lock:
            is_wanted = ticket in self._prepared
            if is_wanted:
                self._prepared[ticket] = prepared
        if not is_wanted:
            prepared.close()

    # --- the decoding thread ----------------------------------------------------

    def _decode_all(self, backend: WorkerBackend) -> None:
        beside = backend.leaves_cores
        while True:
            is_busy = backend.is_busy
            if not (is_busy and self._commands.empty()):
                self._run_commands(backend)
                is_busy = backend.is_busy
            outcomes: list[StepOutcome | Heartbeat] = []
            if is_busy:
                outcomes += [each for each in backend.step() if each != _NOTHING]
            now = time.monotonic()
            if not outcomes and now - self._sent_at >= self._heartbeat_s:
                outcomes.append(Heartbeat())
            if outcomes:
                self._sent_at = now
                self._sender.send(outcomes, beside=beside)

    def _run_commands(self, backend: WorkerBackend) -> None:
        """Run queued commands; when idle, wait up to a heartbeat for the first."""
        if not backend.is_busy:
            try:
                command = self._commands.get(timeout=self._heartbeat_s)
            except queue.Empty:
                return
            self._run_command(backend, command)
        while not self._commands.empty():
            self._run_command(backend, self._commands.get_nowait())

    def _apply_append(self, backend: WorkerBackend, ticket: int) -> None:
        with self._lock:
            last = self._appended.pop(ticket, None)
        if last is not None:  # else it was applied already, or the job was dropped
            backend.append_audio(ticket, last.n_bytes, is_last=last.is_last)

    def _run_command(self, backend: WorkerBackend, command: _Command) -> None:
        match command:
            case int():
                backend.drop(command)
            case Append(ticket=ticket):
                self._apply_append(backend, ticket)
            case Pause(ticket=ticket):
                backend.pause(ticket)
            case Resume(ticket=ticket):
                backend.resume(ticket)
            case (ticket, prepared):
                backend.start(ticket, prepared)
