"""A worker without a process: the test drives the far end of its pipe."""

import array
import errno
import signal
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import trio

from inferd.backend.capabilities import BackendCapabilities
from inferd.engine.supervisor.spawn import SpawnedProcess
from inferd.ipc.encoding import MessageSplitter, encode
from inferd.ipc.worker import (
    Ended,
    FromWorker,
    Load,
    Loaded,
    Prepare,
    PromptReady,
    Run,
    Step,
    ToWorker,
)
from inferd.limits.connections import READ_BYTES
from inferd.wire.responses import StopReason, Usage
from tests.fakes.starting import decode_load_too
from tests.fakes.streams import unix_pair

T = TypeVar("T", bound=ToWorker)

PATIENCE_S = 10_000.0
"""Virtual seconds after which a message that has not come has failed its test."""

ANCILLARY_BYTES = socket.CMSG_SPACE(253 * 4)

CAPABILITIES = BackendCapabilities(model="fake", n_ctx=512)
MARKER = b"<|marker|>"
"""The piece of a token that is no text."""


def ended(
    ticket: int,
    n_tokens: int,
    *,
    stop_reason: StopReason = "end",
    stop_token_id: int | None = None,
) -> Ended:
    """Make the end of a run."""
    usage = Usage(prompt_tokens=3, completion_tokens=n_tokens, cached_tokens=1)
    return Ended(
        ticket=ticket,
        stop_reason=stop_reason,
        usage=usage,
        stop_token_id=stop_token_id,
    )


class FakeProcess:
    """What the engine knows of a worker: the interface of ``WorkerProcess``."""

    def __init__(self, pid: int, on_kill: Callable[[], None]) -> None:
        self.stream, self.far_stream = unix_pair()
        self.pid = pid
        self.error_line = ""
        self.load_sent = False
        self.holds_client_text = False
        self.n_kills = 0
        self._on_kill = on_kill
        self._code: int | None = None
        self._ended = trio.Event()

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self._code is None

    def redact_stderr(self) -> None:
        self.holds_client_text = True

    def kill(self) -> None:
        self.n_kills += 1
        self._on_kill()

    def end(self, code: int) -> None:
        """Have it end; what it sent before can still be read."""
        if self._code is None:
            self._code = code
            self.far_stream.socket.close()
            self._ended.set()

    async def wait(self) -> int:
        await self._ended.wait()
        assert self._code is not None
        return self._code


class FakeWorker:
    """One worker's life, as the test has it.

    Args:
        ignores_kill: it takes a test to end it, as it does with a stopped machine.
    """

    def __init__(self, pid: int) -> None:
        self.process = FakeProcess(pid, self._killed)
        self._splitter = MessageSplitter()
        self.received: list[ToWorker] = []
        self.fds: list[int] = []
        """Descriptors that came; whoever takes them closes them."""

    @property
    def was_killed(self) -> bool:
        """Whether the engine ended it before it ended by itself."""
        return self.process.n_kills > 0

    def die(self, code: int = -signal.SIGSEGV) -> None:
        """End by itself."""
        self.process.end(code)

    async def expect(self, kind: type[T]) -> T:
        """Read the next message, which must be one of these."""
        with trio.fail_after(PATIENCE_S):
            while (payload := self._splitter.next_payload()) is None:
                data = await self._read()
                assert data, "the engine closed the pipe"
                self._splitter.feed(data)
        message = decode_load_too(payload)
        self.received.append(message)
        assert isinstance(message, kind), message
        return message

    async def _read(self) -> bytes:
        sock = self.process.far_stream.socket
        try:
            data, ancillary, _, _ = await sock.recvmsg(READ_BYTES, ANCILLARY_BYTES)
        except OSError as error:  # as streams have it
            is_closed = error.errno == errno.EBADF
            kind = trio.ClosedResourceError if is_closed else trio.BrokenResourceError
            raise kind from error
        for _, _, fds in ancillary:
            self.fds += array.array("i", fds)
        return data

    async def hear(self) -> list[ToWorker]:
        """Read all that comes before everything waits."""
        heard: list[ToWorker] = []
        with trio.move_on_after(0.001):
            while True:
                heard.append(await self.expect(ToWorker))  # type: ignore[arg-type]
        return heard

    async def say(self, *messages: FromWorker) -> None:
        """Send messages in one piece."""
        await self.say_raw(b"".join(encode(message) for message in messages))

    async def say_raw(self, data: bytes) -> None:
        """Send bytes."""
        await self.process.far_stream.send_all(data)

    # --- a well-behaved worker ------------------------------------------------------

    async def get_ready(
        self,
        capabilities: BackendCapabilities = CAPABILITIES,
    ) -> Load:
        """Load."""
        load = await self.expect(Load)
        loaded = Loaded(
            capabilities=capabilities,
            library="fake 1",
            marker_tokens=frozenset({MARKER}),
        )
        await self.say(loaded)
        return load

    async def prepare(
        self, *, prompt_tokens: int = 3, open_thought: str = ""
    ) -> Prepare:
        """Prepare the next job."""
        prepare = await self.expect(Prepare)
        ticket = prepare.ticket
        await self.say(
            PromptReady(
                ticket=ticket,
                prompt_tokens=prompt_tokens,
                open_thought=open_thought,
            )
        )
        return prepare

    async def run(self, *pieces: bytes, stop_reason: StopReason = "end") -> int:
        """Run the next job to its end; give its ticket."""
        ticket = (await self.expect(Run)).ticket
        await self.speak(ticket, *pieces)
        await self.end(ticket, len(pieces), stop_reason=stop_reason)
        return ticket

    async def speak(self, ticket: int, *pieces: bytes) -> None:
        """Say pieces, a step each."""
        for piece in pieces:
            await self.say(Step(pieces=[(ticket, piece)]))

    async def end(
        self, ticket: int, n_tokens: int, *, stop_reason: StopReason = "end"
    ) -> None:
        """End a job's run."""
        await self.say(Step(ended=[ended(ticket, n_tokens, stop_reason=stop_reason)]))

    def _killed(self) -> None:
        self.process.end(-signal.SIGKILL)


class Workers:
    """Stands for ``start_worker``: the engine starts workers, the test gets them."""

    def __init__(self) -> None:
        self.started: list[FakeWorker] = []
        self.refusal: OSError | None = None
        self._send, self._receive = trio.open_memory_channel[FakeWorker](1000)

    @asynccontextmanager
    async def start(
        self, _program: str = "", _: SpawnedProcess | None = None, *_others: object
    ) -> AsyncIterator[FakeProcess]:
        """Start one, unless that is to be refused, once; on leaving, it is ended."""
        if (refusal := self.refusal) is not None:
            self.refusal = None
            raise refusal
        worker = FakeWorker(pid=1000 + len(self.started))
        self.started.append(worker)
        self._send.send_nowait(worker)
        process = worker.process
        try:
            yield process
        finally:
            process.end(-signal.SIGKILL)
            await trio.aclose_forcefully(process.stream)

    async def next(self) -> FakeWorker:
        """Wait for the next one that is started."""
        with trio.fail_after(PATIENCE_S):
            return await self._receive.receive()

    async def next_ready(self) -> FakeWorker:
        """Wait for the next one and get it ready."""
        worker = await self.next()
        await worker.get_ready()
        return worker

    @property
    def living(self) -> Sequence[FakeWorker]:
        """Those that have not ended."""
        return [worker for worker in self.started if worker.process.is_alive]
