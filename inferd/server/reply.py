"""The answers to one request: any number of frames, then exactly one terminal frame."""

import os
from collections import deque
from collections.abc import Iterable

import msgspec
import trio
from msgspec import UNSET

from inferd.errors import (
    ContextOverflowError,
    FrameTooLargeError,
    InferdError,
    QueueFullError,
)
from inferd.limits import MAX_ERROR_CHARS, WRITE_BYTES
from inferd.server.unread import Unread
from inferd.wire.codec import encode, encode_in_parts
from inferd.wire.responses import EmbeddingsFrame, ErrorFrame, Response, Terminal


class PeerGoneError(Exception):
    """Nobody reads the answer: the client left, or was cut off since it does not read."""


class Reply:
    """Writes the frames of one request and keeps the count of terminal ones.

    Args:
        stream: to the client.
        request_id: goes into the frame of a failure.
        write_timeout_s: seconds that one wait for the client may take.
        unread: has to have room for what is left to be written in the end.
        uid: the client's user.
    """

    def __init__(
        self,
        stream: trio.SocketStream,
        request_id: str,
        *,
        write_timeout_s: float,
        unread: Unread,
        uid: int,
    ) -> None:
        self._stream = stream
        self._write_timeout_s = write_timeout_s
        self._unread = unread
        self._uid = uid
        self._unsent = bytearray()
        self._rest: deque[Response | bytes] = deque()  # that follows, frames and parts
        self.request_id = request_id
        self.is_over = False

    def put(self, frames: Iterable[Response]) -> None:
        """Have frames written with the next call of those below.

        They become bytes one after another, as they are written: an id that is as long
        as may be would make a thousand times as much of them.
        """
        for frame in frames:
            if self.is_over:
                raise AssertionError("a frame after the terminal one")
            self._rest.append(frame)
            self.is_over = isinstance(frame, Terminal)

    def put_in_parts(self, frame: EmbeddingsFrame, embeddings: Iterable[bytes]) -> None:
        """Have a frame with vectors written, part by part.

        Args:
            frame: with an empty array of vectors.
            embeddings: parts that, joined, are the array.

        Raises:
            FrameTooLargeError: the frame reaches the cap; nothing of it is written.
        """
        if self.is_over:
            raise AssertionError("a frame after the terminal one")
        self._rest.extend(encode_in_parts(frame, embeddings))
        self.is_over = True

    async def fail(self, error: InferdError) -> None:
        """End the request with an error frame; raises as ``finish``."""
        self.put([error_frame(self.request_id, error)])
        await self.finish()

    def has_written(self) -> bool:
        """Write what the kernel takes at once; tell whether that was all.

        Raises:
            PeerGoneError: the client cannot be written to.
            FrameTooLargeError: a frame reaches the cap; it was not written.
        """
        try:
            self._write_now()
        except OSError as error:
            raise PeerGoneError from error
        return not (self._unsent or self._rest)

    async def flush(self) -> None:
        """Write all; wait, with a deadline, for what the kernel does not take at once.

        Nearly every write ends with the first half, which spares the event loop a turn.

        Raises:
            PeerGoneError: the client cannot be written to, or did not read in time.
            FrameTooLargeError: a frame reaches the cap; it was not written.

        Cancellation: what was not written goes out with the next call.
        """
        if self.has_written():
            return
        try:
            with trio.fail_after(self._write_timeout_s):
                while self._unsent or self._rest:
                    await trio.lowlevel.wait_writable(self._stream.socket)
                    self._write_now()
        except (trio.TooSlowError, OSError) as error:
            raise PeerGoneError from error

    async def finish(self) -> None:
        """Write all that is left when the request has nothing else to wait for.

        Raises:
            PeerGoneError: as ``flush``, or there was no room to keep what is left.
            FrameTooLargeError: as ``flush``.
        """
        if self.has_written():
            return
        with self._unread.keeping(self._uid, self._count_left()) as scope:
            await self.flush()
        if scope.cancelled_caught:
            raise PeerGoneError

    def _write_now(self) -> None:
        while self._rest and len(self._unsent) < WRITE_BYTES:
            self._unsent += self._encode(self._rest.popleft())
        if not self._unsent:
            return
        try:
            n_written = os.write(self._stream.socket.fileno(), self._unsent)
        except BlockingIOError:
            return
        del self._unsent[:n_written]

    def _count_left(self) -> int:
        """Tell about how many bytes are left, the id of each frame apart."""
        return len(self._unsent) + sum(map(self._size, self._rest))

    def _size(self, part: Response | bytes) -> int:
        if isinstance(part, bytes):
            return len(part)
        return len(self._encode(msgspec.structs.replace(part, id="")))

    def _encode(self, part: Response | bytes) -> bytes:
        """Make bytes of a frame; where that fails, there is room for an error."""
        if isinstance(part, bytes):
            return part
        try:
            return encode(part)
        except FrameTooLargeError:
            self._rest.clear()
            self.is_over = False
            raise


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
