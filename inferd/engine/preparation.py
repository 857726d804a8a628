"""One preparer's process, from its start to its end: jobs to it, one after another."""

import os
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
        """Wait for the end of a job that nobody waits for any more.

        Raises:
            PreparationGoneError: it has ended.
        """
        while self._owes:
            if isinstance(await self._receive(), Outcome):
                self._owes = False

    async def ask(self, asked: Write) -> Outcome:
        """Have a job written.

        Raises:
            PreparationGoneError: it has ended, or has not read the job to its end.

        Cancellation: the job goes on; ``settle`` waits for its end.
        """
        self.where = ""
        self._owes = True
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
            with suppress(OSError):  # no descriptor: ``end`` waits
                pidfd = os.pidfd_open(self.pid)
                try:
                    await trio.lowlevel.wait_readable(pidfd)
                finally:
                    os.close(pidfd)
            end(self._spawned)
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
        except (
            trio.BrokenResourceError,
            trio.ClosedResourceError,  # by who replaces it
            BrokenLinkError,
        ) as error:
            raise PreparationGoneError("it has ended") from error
