"""The answers to one request: any number of frames, then exactly one terminal frame."""

import os
from collections import deque
from collections.abc import Iterable

import msgspec
import trio
from msgspec import UNSET

from inferd.errors import ContextOverflowError, InferdError, QueueFullError
from inferd.limits import MAX_ERROR_CHARS
from inferd.wire.codec import encode, encode_in_parts
from inferd.wire.responses import EmbeddingsFrame, ErrorFrame, Response, Terminal


class PeerGoneError(Exception):
    """Nobody reads the answer: the client left, or has stopped reading for too long."""


class Reply:
    """Writes the frames of one request and keeps the count of terminal ones."""

    def __init__(
        self, stream: trio.SocketStream, request_id: str, *, write_timeout_s: float
    ) -> None:
        self._stream = stream
        self._write_timeout_s = write_timeout_s
        self._unsent = bytearray()
        self._parts: deque[bytes] = deque()  # that follow; none while nothing is unsent
        self.request_id = request_id
        self.is_over = False

    async def send(self, frames: Iterable[Response]) -> None:
        """Write frames in one call.

        Raises:
            PeerGoneError: the client cannot be written to, or did not read in time.
            FrameTooLargeError: a frame reaches the cap; nothing was written.

        Cancellation: what was not written goes out with the next call, or ``flush``.
        """
        lines = bytearray()
        for frame in frames:
            if self.is_over:
                raise AssertionError("a frame after the terminal one")
            lines += encode(frame)
            self.is_over = isinstance(frame, Terminal)
        self._unsent += lines
        await self.flush()

    async def send_in_parts(
        self, frame: EmbeddingsFrame, embeddings: Iterable[bytes]
    ) -> None:
        """Write a frame with vectors, part by part; raises and is cancelled as ``send``.

        Args:
            frame: with an empty array of vectors.
            embeddings: parts that, joined, are the array.
        """
        if self.is_over:
            raise AssertionError("a frame after the terminal one")
        first, *rest = filter(None, encode_in_parts(frame, embeddings))
        self.is_over = True
        self._unsent += first
        self._parts.extend(rest)
        await self.flush()

    async def fail(self, error: InferdError) -> None:
        """End the request with an error frame."""
        await self.send([error_frame(self.request_id, error)])

    async def flush(self) -> None:
        """Write what the kernel takes at once; wait, with a deadline, for the rest.

        Nearly every write ends with the first half, which spares the event loop a turn.
        """
        if not self._unsent:
            return
        try:
            self._write_now()
            if self._unsent:
                with trio.fail_after(self._write_timeout_s):
                    await self._write()
        except (trio.TooSlowError, OSError) as error:
            raise PeerGoneError from error

    def _write_now(self) -> None:
        try:
            n_written = os.write(self._stream.socket.fileno(), self._unsent)
        except BlockingIOError:
            return
        del self._unsent[:n_written]
        if self._parts and not self._unsent:
            self._unsent += self._parts.popleft()

    async def _write(self) -> None:
        while self._unsent:
            await trio.lowlevel.wait_writable(self._stream.socket)
            self._write_now()


def error_frame(request_id: str, error: InferdError) -> ErrorFrame:
    """Write a failure as the wire has it; a value that it quotes may be cut off."""
    text = error.message
    message = text if len(text) <= MAX_ERROR_CHARS else f"{text[:MAX_ERROR_CHARS]}…"
    frame = ErrorFrame(id=request_id, code=error.code, message=message)
    match error:
        case ContextOverflowError():
            return msgspec.structs.replace(
                frame,
                prompt_tokens=error.prompt_tokens,
                n_ctx=error.n_ctx,
                tokens_over=error.tokens_over,
                at_least=error.at_least or UNSET,
            )
        case QueueFullError(depth=depth, retry_after_ms=retry_after_ms):
            return msgspec.structs.replace(
                frame,
                queue_depth=depth,
                retry_after_ms=UNSET if retry_after_ms is None else retry_after_ms,
            )
        case _:
            return frame
