"""The answers to one request: any number of frames, then exactly one terminal frame."""

import os
from collections.abc import Iterable

import trio

from inferd.errors import ContextOverflowError, InferdError
from inferd.wire.codec import encode
from inferd.wire.responses import ErrorFrame, Response, Terminal


class PeerGoneError(Exception):
    """Nobody reads the answer: the client left, or has stopped reading for too long."""


class Reply:
    """Writes the frames of one request and keeps the count of terminal ones."""

    def __init__(
        self, stream: trio.SocketStream, request_id: str, *, write_timeout_s: float
    ) -> None:
        self._stream = stream
        self._write_timeout_s = write_timeout_s
        self.request_id = request_id
        self.is_over = False

    async def send(self, frames: Iterable[Response]) -> None:
        """Write frames in one call.

        Raises:
            PeerGoneError: the client cannot be written to, or did not read in time.
            FrameTooLargeError: a frame reaches the cap; nothing was written.
        """
        lines = bytearray()
        for frame in frames:
            if self.is_over:
                raise AssertionError("a frame after the terminal one")
            lines += encode(frame)
            self.is_over = isinstance(frame, Terminal)
        if lines:
            await self._write(lines)

    async def fail(self, error: InferdError) -> None:
        """End the request with an error frame."""
        await self.send([error_frame(self.request_id, error)])

    async def _write(self, data: bytearray) -> None:
        """Write what the kernel takes at once; wait, with a deadline, for the rest.

        Nearly every write ends with the first half, which spares the event loop a turn.
        """
        try:
            n_written = self._write_now(data)
            if n_written < len(data):
                with trio.fail_after(self._write_timeout_s):
                    await self._stream.send_all(memoryview(data)[n_written:])
        except (trio.TooSlowError, trio.BrokenResourceError, OSError) as error:
            raise PeerGoneError from error

    def _write_now(self, data: bytearray) -> int:
        try:
            return os.write(self._stream.socket.fileno(), data)
        except BlockingIOError:
            return 0


def error_frame(request_id: str, error: InferdError) -> ErrorFrame:
    """Write a failure as the wire has it."""
    if isinstance(error, ContextOverflowError):
        return ErrorFrame(
            id=request_id,
            code=error.code,
            message=error.message,
            prompt_tokens=error.prompt_tokens,
            n_ctx=error.n_ctx,
            tokens_over=error.tokens_over,
        )
    return ErrorFrame(id=request_id, code=error.code, message=error.message)
