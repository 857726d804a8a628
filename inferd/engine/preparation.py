"""One preparer's process, from its start to its end: jobs to it, one after another."""

import os
import socket
from contextlib import suppress
from typing import Final

import trio

from inferd.engine.spawn import PREPARER, end, kill, spawn
from inferd.limits import READ_BYTES
from inferd.pipe import (
    BrokenLinkError,
    MessageSplitter,
    decode_from_preparer,
    encode_in_parts,
)
from inferd.preparing import (
    A_FORK_ENDED,
    Broken,
    Ended,
    FromPreparer,
    Learn,
    Ready,
    Took,
    ToPreparer,
    Trying,
    Unwritable,
    Write,
    Wrote,
)

Outcome = Wrote | Unwritable | Broken | Ended
"""What came of a job."""
_SEND_S: Final = 5.0
"""Seconds in which it takes a job, of which none is sent before it waits for one."""


_END_S: Final = 2.0
"""Seconds that a fork has to end after its job; it has nothing left to do."""


class PreparationGoneError(Exception):
    """The process is gone, or says what makes no sense: another one has to be started."""


class Preparation:
    """Talks to one process. One task at a time does.

    Raises:
        OSError: no process is to be had.

    Ownership:
        The process is the caller's to end with ``aclose``.
    """

    def __init__(self) -> None:
        self._spawned = spawn(PREPARER)
        assert self._spawned.popen.stdout is not None  # noqa: S101  # as spawn says
        self._ends = trio.lowlevel.FdStream(os.dup(self._spawned.popen.stdout.fileno()))
        self._has_asked = False
        sock = self._spawned.sock.dup()
        sock.setblocking(False)  # noqa: FBT003  # socket's own signature
        self._stream = trio.SocketStream(trio.socket.from_stdlib_socket(sock))
        self._splitter = MessageSplitter()
        self._owes = False
        self.where = ""
        """The field whose grammar was tried last of the job under way."""

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._spawned.popen.pid

    async def learn(self, message: Learn) -> None:
        """Tell it what it has to know; wait until it has built what it needs.

        Raises:
            PreparationGoneError: it has ended.
        """
        await self._send(message)
        if not isinstance(await self._receive(), Ready):
            raise PreparationGoneError("it is not ready")

    async def settle(self) -> None:
        """Wait for the end of a job that nobody waits for any more, and of its fork.

        Raises:
            PreparationGoneError: it has ended, or the fork does not, or has said more.
        """
        while self._owes:
            if isinstance(await self._receive(), Outcome):
                self._owes = False
        if self._has_asked:
            with trio.move_on_after(_END_S) as waiting:
                told = await self._ends.receive_some(READ_BYTES)
            if waiting.cancelled_caught or told != A_FORK_ENDED or self._has_more():
                raise PreparationGoneError("a fork goes on after its job")
            self._has_asked = False

    def _has_more(self) -> bool:
        """Tell whether anything was said that nobody has read."""
        if not self._splitter.is_empty:
            return True
        with suppress(BlockingIOError):
            self._spawned.sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            return True
        return False

    async def ask(self, asked: Write) -> Outcome:
        """Have a job written, once the fork of the one before it is gone.

        That one could read this job otherwise, which is another user's, and answer it.

        Raises:
            PreparationGoneError: it has ended, or has not read the job to its end.

        Cancellation: the job goes on; ``settle`` waits for its end.
        """
        await self.settle()
        self.where = ""
        self._owes = self._has_asked = True
        with trio.CancelScope(shield=True), trio.move_on_after(_SEND_S) as sending:
            await self._send(asked)
        if sending.cancelled_caught:
            raise PreparationGoneError("it does not read")
        is_taken = False
        while True:
            match await self._receive():
                case Took(ticket=asked.ticket):
                    is_taken = True
                case Trying(ticket=asked.ticket, where=where) if is_taken:
                    self.where = where
                case Ended() as ended if is_taken:
                    self._owes = False
                    return ended
                case (
                    Wrote(ticket=asked.ticket)
                    | Unwritable(ticket=asked.ticket)
                    | Broken(ticket=asked.ticket)
                ) as outcome if is_taken:
                    self._owes = False
                    return outcome
                case _:  # a fork that died over nothing may have read part of the job
                    raise PreparationGoneError("it is out of step")

    def kill(self) -> None:
        """Send it and its fork SIGKILL."""
        kill(self._spawned.popen)

    async def aclose(self) -> None:
        """Kill it and reap it; not cancelled before that is done."""
        self.kill()
        with trio.CancelScope(shield=True):
            pidfd = os.pidfd_open(self.pid)
            try:
                await trio.lowlevel.wait_readable(pidfd)
            finally:
                os.close(pidfd)
            end(self._spawned)
            await self._ends.aclose()
            await self._stream.aclose()

    async def _send(self, message: ToPreparer) -> None:
        try:
            for part in encode_in_parts(message):
                await self._stream.send_all(part)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise PreparationGoneError("it has ended") from error

    async def _receive(self) -> FromPreparer:
        try:
            while (payload := self._splitter.next_payload()) is None:
                data = await self._stream.receive_some(READ_BYTES)
                if not data:
                    raise PreparationGoneError("it has ended")
                self._splitter.feed(data)
            return decode_from_preparer(payload)
        except (trio.BrokenResourceError, BrokenLinkError) as error:
            raise PreparationGoneError("it has ended") from error
