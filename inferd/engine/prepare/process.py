"""The preparer process: its start and end, and the jobs sent to it, one after another."""

import os
import socket
from contextlib import suppress
from typing import Final

import trio

from inferd.engine.supervisor.process import reap
from inferd.engine.supervisor.spawn import PREPARER, kill, kill_and_reap, spawn
from inferd.ipc.encoding import (
    MalformedMessageError,
    MessageSplitter,
    decode_from_preparer,
    encode_in_parts,
)
from inferd.ipc.preparer import (
    FORK_EXITED,
    CompilingGrammar,
    Configure,
    ForkExited,
    FromPreparer,
    JobReceived,
    Ready,
    Render,
    Rendered,
    RenderFailed,
    RenderRefused,
    ToPreparer,
)
from inferd.limits.connections import READ_BYTES, WRITE_BYTES
from inferd.limits.engine import RENDER_ATTEMPTS_MAX, RENDER_TIMEOUT_S

RenderOutcome = Rendered | RenderRefused | RenderFailed | ForkExited
"""The outcome of a job."""
_RECEIPT_S: Final = RENDER_TIMEOUT_S / RENDER_ATTEMPTS_MAX
"""Seconds in which a job is sent, and as many more in which its receipt is confirmed: the
fork for the job before may still hold the socket. Another process then has time left for
it."""

_CONNECTION_ERRORS: Final = (
    trio.BrokenResourceError,
    trio.ClosedResourceError,
    MalformedMessageError,
)
"""How the connection fails: closed by the process or by ``aclose``, or with a malformed
message."""


_FORK_EXIT_S: Final = 2.0
"""Seconds that a fork has to exit after its job; it has nothing left to do."""


class PreparerGoneError(Exception):
    """The process is gone or broke the protocol: another one must be started."""


class PreparerProcess:
    """The message exchange with one preparer process, for one task at a time.

    Raises:
        OSError: no process can be started.

    Ownership:
        The caller must end the process with ``aclose``.
    """

    def __init__(self) -> None:
        self._spawned = spawn(PREPARER)
        assert self._spawned.popen.stdout is not None  # noqa: S101  # as spawn says
        self._fork_exits = self._spawned.popen.stdout
        self._fork_may_run = False
        sock = self._spawned.sock
        sock.setblocking(False)  # noqa: FBT003  # socket's own signature
        self._stream = trio.SocketStream(trio.socket.from_stdlib_socket(sock))
        self._splitter = MessageSplitter()
        self._is_reply_due = False
        self.grammar_field = ""
        """The field of the current job whose grammar was compiled last."""

    @property
    def pid(self) -> int:
        """The process id."""
        return self._spawned.popen.pid

    async def configure(self, message: Configure) -> None:
        """Configure the process, and wait until it is ready.

        Raises:
            PreparerGoneError: it has ended.
        """
        await self._send(message)
        if not isinstance(await self._receive(), Ready):
            raise PreparerGoneError("it is not ready")

    async def wait_idle(self) -> None:
        """Wait for the reply to an abandoned job, and for the exit of its fork.

        Raises:
            PreparerGoneError: the process has ended, its fork goes on, or more messages
                came.
        """
        while self._is_reply_due:
            if isinstance(await self._receive(), RenderOutcome):
                self._is_reply_due = False
        if self._fork_may_run:
            if not await self._fork_exited() or self._has_unread():
                raise PreparerGoneError("a fork goes on after its job")
            self._fork_may_run = False

    async def _fork_exited(self) -> bool:
        """Wait until the preparer reports that a fork has exited; tell whether it did."""
        with trio.move_on_after(_FORK_EXIT_S), suppress(trio.ClosedResourceError):
            await trio.lowlevel.wait_readable(self._fork_exits)
            return os.read(self._fork_exits.fileno(), READ_BYTES) == FORK_EXITED
        return False

    def _has_unread(self) -> bool:
        """Tell whether there are unread messages."""
        if not self._splitter.is_empty:
            return True
        with suppress(BlockingIOError):
            self._spawned.sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            return True
        return False

    async def render(self, message: Render) -> RenderOutcome:
        """Have a job rendered, once the fork for the job before has exited.

        Otherwise that fork could read this job, which is another user's, and reply to it.

        Raises:
            PreparerGoneError: the process has ended, or has not read the whole job.

        Cancellation: the job goes on; ``wait_idle`` waits for its end.
        """
        await self.wait_idle()
        self.grammar_field = ""
        self._is_reply_due = self._fork_may_run = True
        with trio.CancelScope(shield=True), trio.move_on_after(_RECEIPT_S) as sending:
            await self._send(message)
        if sending.cancelled_caught:
            raise PreparerGoneError("it does not read")
        with trio.move_on_after(_RECEIPT_S) as receipt:
            if await self._receive() != JobReceived(ticket=message.ticket):
                raise PreparerGoneError("unexpected message")
        if receipt.cancelled_caught:
            raise PreparerGoneError("it takes no job")
        return await self._outcome(message.ticket)

    async def _outcome(self, ticket: int) -> RenderOutcome:
        while True:
            match await self._receive():
                case CompilingGrammar(ticket=replied, field=field) if replied == ticket:
                    self.grammar_field = field
                case ForkExited() as ended:
                    self._is_reply_due = False
                    return ended
                case (
                    Rendered(ticket=replied)
                    | RenderRefused(ticket=replied)
                    | RenderFailed(ticket=replied)
                ) as outcome if replied == ticket:
                    self._is_reply_due = False
                    return outcome
                case _:
                    raise PreparerGoneError("unexpected message")

    def kill(self) -> None:
        """Send SIGKILL to the process and its fork."""
        kill(self._spawned.popen)

    async def aclose(self) -> None:
        """Kill and reap the process; shielded from cancellation."""
        self.kill()
        with trio.CancelScope(shield=True):
            await reap(self._spawned)
            await self._stream.aclose()
            if not self._fork_exits.closed:
                trio.lowlevel.notify_closing(self._fork_exits)
            kill_and_reap(self._spawned)

    async def _send(self, message: ToPreparer) -> None:
        try:
            for part in encode_in_parts(message):
                for begin in range(0, len(part), WRITE_BYTES):
                    await self._stream.send_all(part[begin : begin + WRITE_BYTES])
        except _CONNECTION_ERRORS as error:
            raise PreparerGoneError("it has ended") from error

    async def _receive(self) -> FromPreparer:
        try:
            while (payload := self._splitter.next_payload()) is None:
                data = await self._stream.receive_some(READ_BYTES)
                if not data:
                    raise PreparerGoneError("it has ended")
                self._splitter.feed(data)
            return decode_from_preparer(payload)
        except _CONNECTION_ERRORS as error:
            raise PreparerGoneError("it has ended") from error
