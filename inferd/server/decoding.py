"""Large lines are read by other processes: started when there is one, replaced when they die."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

import msgspec
import structlog
import trio

from inferd.decoder.limits import MAX_HEAD_BYTES
from inferd.decoder.messages import (
    ANSWER,
    BOXED,
    LENGTH_BYTES,
    Answer,
    Ask,
    framed,
    makes_sense,
    most_bytes,
)
from inferd.engine.process import reap
from inferd.engine.spawn import DECODER, end, kill, spawn
from inferd.errors import InvalidFrameError
from inferd.ipc import Boxed
from inferd.limits import MAX_FRAME_BYTES
from inferd.server.large_lines import LargeLines
from inferd.server.limits import DECODE_S, DECODED_APART_BYTES, MAX_DECODERS
from inferd.server.loop import Loop

READ_BYTES: Final = 256 * 1024
"""Bytes of an answer that are read at once: some 50 µs."""

log = structlog.get_logger("daemon")


class Decoded(NamedTuple):
    """What a line is, and the bytes that follow it."""

    answer: Answer
    sections: Sequence[bytearray]


class Decoder:
    """A process that reads lines, one at a time.

    Ownership: ``kill`` it in the end.

    Raises:
        OSError: there are too few descriptors or processes to be had.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._spawned = spawn(DECODER)
        self._sock = self._spawned.sock
        self._sock.setblocking(False)  # noqa: FBT003  # socket's own signature

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._spawned.popen.pid

    async def greet(self) -> Boxed:
        """Wait until it is in its sandbox, once; give what holds it in.

        Raises:
            OSError: the process has died.
            msgspec.DecodeError: it says something else.
        """
        return BOXED.decode(await self._receive_message(MAX_HEAD_BYTES))

    async def read(self, ask: Ask, parts: Sequence[bytes | bytearray]) -> Decoded:
        """Have a line read.

        Args:
            ask: about the line.
            parts: that are the line, together.

        Raises:
            OSError: the process has died.
            msgspec.DecodeError: it says what is no answer.

        Cancellation: it cannot be used again.
        """
        for part in (framed(ask), *parts):
            await self._send(part)
        answer = ANSWER.decode(await self._receive_message(most_bytes(ask)))
        if not makes_sense(ask, answer):
            raise msgspec.DecodeError("an answer to no such line")
        return Decoded(answer, [await self._receive(n) for n in answer.sections])

    def interrupt(self) -> None:
        """End it, whatever it does, for whoever waits for it to find out."""
        kill(self._spawned.popen)

    def kill(self) -> None:
        """End it, whatever it does; returns once it is gone."""
        end(self._spawned)

    async def aclose(self) -> None:
        """End it, whatever it does: giving back gigabytes takes the kernel a while.

        Cancellation: not before it is gone.
        """
        self.interrupt()
        with trio.CancelScope(shield=True):
            await reap(self._spawned)
        self.kill()

    async def _send(self, part: bytes | bytearray) -> None:
        rest = memoryview(part)
        while rest:
            try:
                n_sent = self._sock.send(rest)
            except BlockingIOError:
                await trio.lowlevel.wait_writable(self._sock)
                await self._loop.turn()
            else:
                rest = rest[n_sent:]

    async def _receive_message(self, most_bytes: int) -> bytearray:
        n_bytes = int.from_bytes(await self._receive(LENGTH_BYTES), "little")
        if n_bytes > most_bytes:
            raise OSError(f"{n_bytes} bytes are announced")
        return await self._receive(n_bytes)

    async def _receive(self, n_bytes: int) -> bytearray:
        data = bytearray()
        while len(data) < n_bytes:
            try:
                got = self._sock.recv(min(READ_BYTES, n_bytes - len(data)))
            except BlockingIOError:
                await trio.lowlevel.wait_readable(self._sock)
                await self._loop.turn()
                continue
            if not got:
                raise OSError("it has ended")
            data += got
            await trio.lowlevel.checkpoint()
            await self._loop.turn()
        return data


class Decoders:
    """As many as are needed, up to a bound; a single user has all but one at most.

    Args:
        loop: gives turns to read and write.
        n_most: processes at once.
    """

    def __init__(self, loop: Loop | None = None, n_most: int = MAX_DECODERS) -> None:
        self._loop = Loop() if loop is None else loop
        self.apart_bytes = MAX_FRAME_BYTES + 1
        """From so many on a line is large; none is before they are open."""
        self._turns = LargeLines(n_most)
        self._idle: list[Decoder] = []
        self._all: set[Decoder] = set()
        self._is_over = False
        self._boxed: Boxed | None = None

    @contextmanager
    def open(self) -> Iterator[None]:
        """Have processes started when they are needed; all are killed on leaving."""
        self.apart_bytes = DECODED_APART_BYTES
        try:
            yield
        finally:
            while self._all:
                self._all.pop().kill()
            self._idle.clear()

    def interrupt(self) -> None:
        """End what is under way, and read nothing from here on: nobody waits for it."""
        self._is_over = True
        for decoder in self._all:
            decoder.interrupt()

    async def read(
        self, ask: Ask, parts: Sequence[bytes | bytearray], *, user: int
    ) -> Decoded:
        """Have a line read when it is its user's turn.

        Args:
            ask: about the line.
            parts: that are the line, together.
            user: who is counted for it.

        Raises:
            InvalidFrameError: it takes too much to be read, or nobody can read it.

        Cancellation: waits until a process that reads has come to an end, so that
        it need not be replaced; ``DECODE_S`` at most, or until ``interrupt``.
        """
        async with self._turns.turn(user):
            with trio.CancelScope(shield=True):
                decoded = await self._read(ask, parts)
            await trio.lowlevel.checkpoint_if_cancelled()
            return decoded

    async def _read(self, ask: Ask, parts: Sequence[bytes | bytearray]) -> Decoded:
        with suppress(OSError):  # one that ended after the line before
            if self._idle:
                return await self._read_by(self._idle.pop(), ask, parts)
        if self._is_over:
            raise InvalidFrameError("the daemon is going down")
        try:
            decoder = Decoder(self._loop)
            self._all.add(decoder)
            return await self._read_by(decoder, ask, parts, is_new=True)
        except OSError as error:
            raise InvalidFrameError(
                "the line takes too much time or memory to be read"
            ) from error

    async def _read_by(
        self,
        decoder: Decoder,
        ask: Ask,
        parts: Sequence[bytes | bytearray],
        *,
        is_new: bool = False,
    ) -> Decoded:
        decoded = None
        try:
            with trio.move_on_after(DECODE_S):
                if is_new:
                    self._note(await decoder.greet())
                decoded = await decoder.read(ask, parts)
        except msgspec.DecodeError as error:
            raise OSError("it says what is no answer") from error
        finally:
            if decoded is None:
                self._all.discard(decoder)
                await decoder.aclose()
            else:
                self._idle.append(decoder)
        if decoded is None:
            raise InvalidFrameError("the line takes too much time to be read")
        return decoded

    def _note(self, boxed: Boxed) -> None:
        """Log what holds a process in, unless the one before was held like that, too."""
        if boxed != self._boxed:
            self._boxed = boxed
            say = log.info if boxed.is_whole else log.warning
            say("decoder.boxed", **msgspec.structs.asdict(boxed))
