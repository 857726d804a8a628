"""One preparer's process, from its start to its end: jobs to it, one after another."""

import os
import socket
from contextlib import suppress
from typing import Final

import trio

from inferd.engine.process import reap
from inferd.engine.spawn import PREPARER, end, kill, spawn
from inferd.limits import READ_BYTES, WRITES_MAX, WRITING_TIMEOUT_S
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
_TAKE_S: Final = WRITING_TIMEOUT_S / WRITES_MAX
"""Seconds in which a job is sent, and as many more in which it is taken: whoever served the
job before may not have ended. Another process has time left for it then."""

_GONE: Final = (trio.BrokenResourceError, trio.ClosedResourceError, BrokenLinkError)
"""How a line ends: on its side, by ``aclose`` meanwhile, or with what makes no sense."""


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
        self._ends = self._spawned.popen.stdout
        self._has_asked = False
        sock = self._spawned.sock
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
            if not await self._has_ended() or self._has_more():
                raise PreparationGoneError("a fork goes on after its job")
            self._has_asked = False

    async def _has_ended(self) -> bool:
        """Wait until the preparer says that a fork is gone; it may not do so."""
        with trio.move_on_after(_END_S), suppress(trio.ClosedResourceError):
            await trio.lowlevel.wait_readable(self._ends)
            return os.read(self._ends.fileno(), READ_BYTES) == A_FORK_ENDED
        return False

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
        with trio.CancelScope(shield=True), trio.move_on_after(_TAKE_S) as sending:
            await self._send(asked)
        if sending.cancelled_caught:
            raise PreparationGoneError("it does not read")
        with trio.move_on_after(_TAKE_S) as taking:
            if await self._receive() != Took(ticket=asked.ticket):
                raise PreparationGoneError("it is out of step")
        if taking.cancelled_caught:
            raise PreparationGoneError("it takes no job")
        return await self._outcome(asked.ticket)

    async def _outcome(self, ticket: int) -> Outcome:
        while True:
            match await self._receive():
                case Trying(ticket=said, where=where) if said == ticket:
                    self.where = where
                case Ended() as ended:
                    self._owes = False
                    return ended
                case (
                    Wrote(ticket=said) | Unwritable(ticket=said) | Broken(ticket=said)
                ) as outcome if said == ticket:
                    self._owes = False
                    return outcome
                case _:
                    raise PreparationGoneError("it is out of step")

    def kill(self) -> None:
        """Send it and its fork SIGKILL."""
        kill(self._spawned.popen)

    async def aclose(self) -> None:
        """Kill it and reap it; not cancelled before that is done."""
        self.kill()
        with trio.CancelScope(shield=True):
            await reap(self._spawned)
            await self._stream.aclose()
            if not self._ends.closed:
                trio.lowlevel.notify_closing(self._ends)
            end(self._spawned)

    async def _send(self, message: ToPreparer) -> None:
        try:
            for part in encode_in_parts(message):
                await self._stream.send_all(part)
        except _GONE as error:
            raise PreparationGoneError("it has ended") from error

    async def _receive(self) -> FromPreparer:
        try:
            while (payload := self._splitter.next_payload()) is None:
                data = await self._stream.receive_some(READ_BYTES)
                if not data:
                    raise PreparationGoneError("it has ended")
                self._splitter.feed(data)
            return decode_from_preparer(payload)
        except _GONE as error:
            raise PreparationGoneError("it has ended") from error
