"""The worker's threads: one reads, two prepare, one decodes.

Only the decoding thread touches the model's context; only the reading thread hears the
daemon. They meet in two queues, which the daemon's admission bounds: it never has more
jobs under way than it lets in.
"""

import os
import queue
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial

from inferd.fit import Share
from inferd.ipc import (
    Alive,
    Append,
    Drop,
    Failed,
    Load,
    LoadFailed,
    Overflow,
    Prepare,
    PromptReady,
    Refused,
    Run,
    Spell,
    Spelt,
    Step,
)
from inferd.job import compiles
from inferd.limits import HEARTBEAT_S
from inferd.worker.backend import (
    LoadError,
    PreparedJob,
    PromptOverflowError,
    RefusedError,
    WorkerBackend,
)
from inferd.worker.link import Link, Received, close_all

EXIT_LOAD_FAILED = 3
EXIT_BUG = 70

_Start = tuple[int, PreparedJob]
_ToPrepare = tuple[Prepare, tuple[int, ...]]
_NOTHING = Step()


class Runtime:
    """Serves one daemon until it goes away."""

    def __init__(
        self,
        link: Link,
        make_backend: Callable[[Load], WorkerBackend],
        begin_serving: Callable[[], None] = lambda: None,
    ) -> None:
        self._link = link
        self._make_backend = make_backend
        self._begin_serving = begin_serving
        self._to_prepare: queue.SimpleQueue[_ToPrepare] = queue.SimpleQueue()
        self._to_compile: queue.SimpleQueue[_ToPrepare] = queue.SimpleQueue()
        self._commands: queue.SimpleQueue[_Start | Append | int] = queue.SimpleQueue()
        self._prepared: dict[int, PreparedJob | None] = {}
        self._appended: dict[int, Append] = {}  # the last of each job that nobody heard
        self._lock = threading.Lock()
        self._spoke_at = time.monotonic()
        self._heartbeat_s = HEARTBEAT_S

    def serve(self) -> int:
        """Load, then obey; give the exit code."""
        match self._link.receive():
            case Received(Load() as load):
                pass
            case _:
                return EXIT_BUG
        self._heartbeat_s = load.heartbeat_s
        try:
            backend = self._make_backend(load)
            share = self._ask_for_memory(backend)
            loaded = backend.load(self._link.send, share)
            self._begin_serving()
        except LoadError as error:
            self._link.send(LoadFailed(reason=error.reason, whole=error.whole))
            return EXIT_LOAD_FAILED
        self._link.send(loaded)
        for name, waiting in (
            ("prepare", self._to_prepare),
            ("compile", self._to_compile),
        ):
            self._start_thread(partial(self._prepare_all, backend, waiting), name)
        self._start_thread(lambda: self._read_all(backend), "read")
        self._decode_all(backend)
        return 0

    def _ask_for_memory(self, backend: WorkerBackend) -> Share | None:
        demand = backend.predict(self._link.send)
        if demand is None:
            return None
        self._link.send(demand)
        match self._link.receive():
            case Received(Share() as share):
                return share
            case None:
                os._exit(0)  # the daemon is gone
            case _:
                raise RuntimeError("no share for a demand")

    def _start_thread(self, work: Callable[[], None], name: str) -> None:
        def run() -> None:
            try:
                work()
            except BaseException:  # noqa: BLE001  # half a worker is worse than none
                traceback.print_exc()
                os._exit(EXIT_BUG)

        threading.Thread(target=run, name=name, daemon=True).start()

    # --- the reading thread -----------------------------------------------------

    def _read_all(self, backend: WorkerBackend) -> None:
        while (received := self._link.receive()) is not None:
            message, fds = received
            match message:
                case Prepare(ticket=ticket):
                    with self._lock:
                        self._prepared[ticket] = None
                    is_slow = compiles(message.job)
                    waiting = self._to_compile if is_slow else self._to_prepare
                    waiting.put((message, fds))
                case Run(ticket=ticket):
                    self._start(ticket)
                case Append(ticket=ticket):
                    self._append(ticket, message)
                case Drop(ticket=ticket):
                    self._forget(ticket)
                    self._commands.put(ticket)
                    backend.interrupt(ticket)
                case Spell():
                    self._start_thread(lambda: self._spell(backend), "spell")
                case Load() | Share():
                    raise RuntimeError("loaded twice")
        os._exit(0)  # the daemon is gone, and a decode may be under way

    def _spell(self, backend: WorkerBackend) -> None:
        self._link.send(Spelt(words=backend.words()))

    def _start(self, ticket: int) -> None:
        with self._lock:
            prepared = self._prepared.pop(ticket, None)
        if prepared is None:
            raise RuntimeError(f"job {ticket} was never prepared")
        self._commands.put((ticket, prepared))
        if appended := self._appended.get(ticket):
            self._commands.put(appended)

    def _append(self, ticket: int, message: Append) -> None:
        """Note what came for a job; the last tells all that there is.

        So no more than one waits for the decoding thread, however many a client sends
        while that computes.
        """
        with self._lock:
            waits = ticket in self._prepared or ticket in self._appended
            self._appended[ticket] = message
        if not waits:
            self._commands.put(message)

    def _forget(self, ticket: int) -> None:
        with self._lock:
            prepared = self._prepared.pop(ticket, None)
            self._appended.pop(ticket, None)
        if prepared is not None:
            prepared.close()

    # --- the preparing threads: what compiles something keeps nobody else waiting ----

    def _prepare_all(
        self, backend: WorkerBackend, waiting: queue.SimpleQueue[_ToPrepare]
    ) -> None:
        while True:
            self._prepare(backend, *waiting.get())

    def _prepare(
        self, backend: WorkerBackend, message: Prepare, fds: tuple[int, ...]
    ) -> None:
        """Answer every prepare, wanted or not: the daemon counts on one at a time of each."""
        answer = self._answer_to(backend, message, fds)
        if not isinstance(answer, PromptReady):
            close_all(fds)
        self._link.send(answer)

    def _answer_to(
        self, backend: WorkerBackend, message: Prepare, fds: tuple[int, ...]
    ) -> PromptReady | Refused | Overflow | Failed:
        ticket = message.ticket
        try:
            prepared = backend.prepare(message.job, fds)
        except PromptOverflowError as error:
            return Overflow(
                ticket=ticket,
                prompt_tokens=error.prompt_tokens,
                n_ctx=error.n_ctx,
                at_least=error.at_least,
            )
        except RefusedError as error:
            return Refused(ticket=ticket, reason=str(error))
        except Exception as error:  # noqa: BLE001  # one bad job is not the others' end
            traceback.print_exc()
            name = type(error).__name__
            return Failed(ticket=ticket, reason=f"preparing it failed with {name}")
        answer = PromptReady(
            ticket=ticket,
            prompt_tokens=prepared.prompt_tokens,
            open_thought=prepared.open_thought,
        )
        self._keep(ticket, prepared)
        return answer

    def _keep(self, ticket: int, prepared: PreparedJob) -> None:
        with self._lock:
            is_wanted = ticket in self._prepared
            if is_wanted:
                self._prepared[ticket] = prepared
        if not is_wanted:
            prepared.close()

    # --- the decoding thread ----------------------------------------------------

    def _decode_all(self, backend: WorkerBackend) -> None:
        while True:
            self._obey(backend)
            if backend.is_busy:
                for outcome in backend.step():
                    if outcome != _NOTHING:
                        self._spoke_at = time.monotonic()
                        self._link.send(outcome)
            if time.monotonic() - self._spoke_at >= self._heartbeat_s:
                self._spoke_at = time.monotonic()
                self._link.send(Alive())

    def _obey(self, backend: WorkerBackend) -> None:
        """Take the commands that are there; when idle, wait a heartbeat for the first."""
        try:
            if not backend.is_busy:
                self._take(backend, self._commands.get(timeout=self._heartbeat_s))
            while True:
                self._take(backend, self._commands.get_nowait())
        except queue.Empty:
            return

    def _tell_last(self, backend: WorkerBackend, ticket: int) -> None:
        with self._lock:
            last = self._appended.pop(ticket, None)
        if last is not None:  # else it was told already, or the job was dropped
            backend.append(ticket, last.n_bytes, is_last=last.is_last)

    def _take(self, backend: WorkerBackend, command: _Start | Append | int) -> None:
        match command:
            case int():
                backend.drop(command)
            case Append(ticket=ticket):
                self._tell_last(backend, ticket)
            case (ticket, prepared):
                backend.start(ticket, prepared)
