"""Pool of processes that decode large lines: started on demand, replaced when they exit."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

import msgspec
import structlog
import trio

from inferd.engine.supervisor.process import reap
from inferd.engine.supervisor.spawn import DECODER, kill, kill_and_reap, spawn
from inferd.errors import DAEMON_STOPS, InvalidFrameError
from inferd.fair_limiter import FairLimiter
from inferd.ipc.worker import SandboxReport
from inferd.limits.connections import WRITE_BYTES
from inferd.limits.line_decoder import MAX_HEAD_BYTES
from inferd.limits.protocol import MAX_FRAME_BYTES
from inferd.limits.server import DECODE_TIMEOUT_S, MAX_LINE_DECODERS, OFFLOAD_LINE_BYTES
from inferd.line_decoder.kinds import KINDS, is_plausible, max_result_bytes
from inferd.line_decoder.messages import (
    LENGTH_BYTES,
    RESULT_DECODER,
    SANDBOX_REPORT_DECODER,
    DecodeResult,
    DecodeTask,
    framed,
)
from inferd.server.event_loop.scheduler import LoopScheduler

READ_BYTES: Final = 256 * 1024
"""Bytes of a result that are read at once, in some 50 µs."""

log = structlog.get_logger("daemon")


class DecoderOutput(NamedTuple):
    """The head of a decoded line, and the sections of bytes that follow it."""

    result: DecodeResult
    sections: Sequence[bytearray]


class DecoderProcess:
    """A process that decodes lines, one at a time.

    Ownership: the creator calls ``kill`` or ``aclose`` in the end.

    Raises:
        OSError: no descriptor or process is available.
    """

    def __init__(self, loop: LoopScheduler) -> None:
        self._loop = loop
        self._spawned = spawn(DECODER)
        self._sock = self._spawned.sock
        self._sock.setblocking(False)  # noqa: FBT003  # socket's own signature

    @property
    def pid(self) -> int:
        """The process id."""
        return self._spawned.popen.pid

    async def wait_sandboxed(self) -> SandboxReport:
        """Wait until the process has entered its sandbox, once; return its report.

        Raises:
            OSError: the process has exited.
            msgspec.DecodeError: it sent something else.
        """
        return SANDBOX_REPORT_DECODER.decode(
            await self._receive_message(MAX_HEAD_BYTES)
        )

    async def read(
        self, task: DecodeTask, parts: Sequence[bytes | bytearray]
    ) -> DecoderOutput:
        """Have a line decoded.

        Args:
            task: describes the line.
            parts: make up the line when joined.

        Raises:
            OSError: the process has exited.
            msgspec.DecodeError: its result is invalid.

        Cancellation: leaves the process unusable.
        """
        for part in (framed(task), *parts):
            await self._send(part)
        result = RESULT_DECODER.decode(
            await self._receive_message(max_result_bytes(KINDS[task.kind]))
        )
        if not is_plausible(task, result):
            raise msgspec.DecodeError("the result does not fit the line")
        return DecoderOutput(result, [await self._receive(n) for n in result.sections])

    def interrupt(self) -> None:
        """Kill the process without waiting; a pending ``read`` raises."""
        kill(self._spawned.popen)

    def kill(self) -> None:
        """Kill and reap the process."""
        kill_and_reap(self._spawned)

    async def aclose(self) -> None:
        """Kill the process and wait without blocking: freeing gigabytes takes a while.

        Cancellation: not before the process has exited.
        """
        self.interrupt()
        with trio.CancelScope(shield=True):
            await reap(self._spawned)
        self.kill()

    async def _send(self, part: bytes | bytearray) -> None:
        rest = memoryview(part)
        while rest:
            try:
                n_sent = self._sock.send(rest[:WRITE_BYTES])
            except BlockingIOError:
                await trio.lowlevel.wait_writable(self._sock)
            else:
                rest = rest[n_sent:]
                await trio.lowlevel.checkpoint()  # the process may read as fast as this
            await self._loop.turn()

    async def _receive_message(self, max_bytes: int) -> bytearray:
        n_bytes = int.from_bytes(await self._receive(LENGTH_BYTES), "little")
        if n_bytes > max_bytes:
            raise OSError(
                f"the message has {n_bytes} bytes, at most {max_bytes} are allowed"
            )
        return await self._receive(n_bytes)

    async def _receive(self, n_bytes: int) -> bytearray:
        data = bytearray()
        while len(data) < n_bytes:
            try:
                chunk = self._sock.recv(min(READ_BYTES, n_bytes - len(data)))
            except BlockingIOError:
                await trio.lowlevel.wait_readable(self._sock)
                await self._loop.turn()
                continue
            if not chunk:
                raise OSError("the decoder process has exited")
            data += chunk
            await trio.lowlevel.checkpoint()
            await self._loop.turn()
        return data


class DecoderPool:
    """Pool of decoder processes of bounded size; one user has all but one of them at most.

    Args:
        loop: schedules reads and writes by user.
        max_processes: processes at once.
    """

    def __init__(
        self, loop: LoopScheduler | None = None, max_processes: int = MAX_LINE_DECODERS
    ) -> None:
        self._loop = LoopScheduler() if loop is None else loop
        self.offload_line_bytes = MAX_FRAME_BYTES + 1
        """Lines from this length on are decoded here; none are until ``open``."""
        self._limiter = FairLimiter(max_processes)
        self._idle: list[DecoderProcess] = []
        self._all: set[DecoderProcess] = set()
        self._is_closing = False
        self._sandbox_report: SandboxReport | None = None

    @contextmanager
    def open(self) -> Iterator[None]:
        """Start processes on demand while inside; kill them all on leaving."""
        self.offload_line_bytes = OFFLOAD_LINE_BYTES
        try:
            yield
        finally:
            while self._all:
                self._all.pop().kill()
            self._idle.clear()

    def interrupt(self) -> None:
        """Kill all processes, and decode nothing more: the daemon is shutting down."""
        self._is_closing = True
        for decoder in self._all:
            decoder.interrupt()

    async def read(
        self, task: DecodeTask, parts: Sequence[bytes | bytearray], *, user: int
    ) -> DecoderOutput:
        """Have a line decoded as soon as the user gets a permit.

        Args:
            task: describes the line.
            parts: make up the line when joined.
            user: who is charged for it.

        Raises:
            InvalidFrameError: decoding takes too much time or memory, or the daemon stops.

        Cancellation: waits until the process has finished with the line, so that it can be
        used again; for ``DECODE_TIMEOUT_S`` at most, or until ``interrupt``.
        """
        async with self._limiter.acquire(user):
            with trio.CancelScope(shield=True):
                output = await self._read(task, parts)
            await trio.lowlevel.checkpoint_if_cancelled()
            return output

    async def _read(
        self, task: DecodeTask, parts: Sequence[bytes | bytearray]
    ) -> DecoderOutput:
        with suppress(OSError):  # an idle process may have exited
            if self._idle:
                return await self._read_with(self._idle.pop(), task, parts)
        if self._is_closing:
            raise InvalidFrameError(DAEMON_STOPS)
        try:
            decoder = DecoderProcess(self._loop)
            self._all.add(decoder)
            return await self._read_with(decoder, task, parts, is_new=True)
        except OSError as error:
            raise InvalidFrameError(
                "the line takes too much time or memory to be read"
            ) from error

    async def _read_with(
        self,
        decoder: DecoderProcess,
        task: DecodeTask,
        parts: Sequence[bytes | bytearray],
        *,
        is_new: bool = False,
    ) -> DecoderOutput:
        output = None
        try:
            with trio.move_on_after(DECODE_TIMEOUT_S):
                if is_new:
                    self._log_sandbox(await decoder.wait_sandboxed())
                output = await decoder.read(task, parts)
        except msgspec.DecodeError as error:
            raise OSError("the decoder process sent an invalid result") from error
        finally:
            if output is None:
                self._all.discard(decoder)
                await decoder.aclose()
            else:
                self._idle.append(decoder)
        if output is None:
            raise InvalidFrameError("the line takes too much time to be read")
        return output

    def _log_sandbox(self, report: SandboxReport) -> None:
        """Log the report of a sandbox where it differs from the previous one."""
        if report != self._sandbox_report:
            self._sandbox_report = report
            write_log = log.info if report.is_complete else log.warning
            write_log("decoder.boxed", **report.log_fields())
