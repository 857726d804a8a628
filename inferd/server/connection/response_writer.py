"""Write the frames of one response: any number of them, then exactly one terminal frame."""

import os
from collections import deque
from collections.abc import Callable, Iterable

import msgspec
import trio
from msgspec import UNSET

from inferd.backend.caller import Caller
from inferd.errors import (
    BackendUnavailableError,
    ContextOverflowError,
    FrameTooLargeError,
    InferdError,
    ModelNotFoundError,
    QueueFullError,
)
from inferd.limits.connections import WRITE_BYTES
from inferd.limits.protocol import MAX_ERROR_CHARS
from inferd.server.connection.output_quota import OutputQuota
from inferd.wire.codec import encode, encode_in_parts
from inferd.wire.offered_facts import OfferedFacts
from inferd.wire.responses import EmbeddingsFrame, ErrorFrame, Response, TerminalFrame


def _ignore(_: float) -> None:
    pass


class PeerGoneError(Exception):
    """Nobody reads the answer: the client disconnected, or was dropped for not reading."""


class ResponseWriter:
    """Writes the frames of one response and allows one terminal frame.

    Args:
        stream: to the client.
        request_id: for error frames.
        write_timeout_s: seconds for one wait until the client reads.
        output_quota: bounds what is left to be written at the end.
        caller: who asks.
        on_stall: called with the seconds of each wait until the client reads.
    """

    def __init__(  # noqa: PLR0913  # a bound, its quota and who is charged
        self,
        stream: trio.SocketStream,
        request_id: str,
        *,
        write_timeout_s: float,
        output_quota: OutputQuota,
        caller: Caller,
        on_stall: Callable[[float], object] = _ignore,
    ) -> None:
        self._stream = stream
        self._on_stall = on_stall
        self._write_timeout_s = write_timeout_s
        self._output_quota = output_quota
        self._caller = caller
        self._unsent = bytearray()
        self._queued: deque[Response | bytes] = deque()  # frames, and parts of one
        self.request_id = request_id
        self.is_over = False

    def put(self, frames: Iterable[Response]) -> None:
        """Queue frames for the next flush.

        They are encoded one at a time as they are written: with an id of the maximum
        length, the encoded frames could take a thousand times as much memory.
        """
        for frame in frames:
            if self.is_over:
                raise AssertionError("a frame after the terminal one")
            self._queued.append(frame)
            self.is_over = isinstance(frame, TerminalFrame)

    def put_in_parts(self, frame: EmbeddingsFrame, embeddings: Iterable[bytes]) -> None:
        """Queue a frame with vectors, in parts.

        Args:
            frame: has an empty array of vectors.
            embeddings: parts that make up the array when joined.

        Raises:
            FrameTooLargeError: the frame reaches the cap; nothing of it is written.
        """
        if self.is_over:
            raise AssertionError("a frame after the terminal one")
        self._queued.extend(encode_in_parts(frame, embeddings))
        self.is_over = True

    async def fail(self, error: InferdError) -> None:
        """End the response with an error frame; raises as ``finish``."""
        self.put([error_frame(self.request_id, error)])
        await self.finish()

    def try_flush(self) -> bool:
        """Write without blocking; return whether everything is written.

        Raises:
            PeerGoneError: writing to the client failed.
            FrameTooLargeError: a frame reaches the cap; it was not written.
        """
        try:
            self._write_now()
        except OSError as error:
            raise PeerGoneError from error
        return not (self._unsent or self._queued)

    async def flush(self) -> None:
        """Write everything, waiting with a timeout whenever the socket's buffer is full.

        Most calls do not wait, and so cost no extra pass of the event loop.

        Raises:
            PeerGoneError: writing to the client failed, or it did not read in time.
            FrameTooLargeError: a frame reaches the cap; it was not written.

        Cancellation: unwritten bytes are written by the next call.
        """
        if not self.try_flush():
            await self._flush_rest()

    async def _flush_rest(self) -> None:
        began = trio.current_time()
        try:
            with trio.fail_after(self._write_timeout_s):
                while self._unsent or self._queued:
                    await trio.lowlevel.wait_writable(self._stream.socket)
                    self._write_now()
        except (trio.TooSlowError, OSError) as error:
            raise PeerGoneError from error
        finally:
            self._on_stall(trio.current_time() - began)

    async def finish(self) -> None:
        """Write the rest of a complete response.

        Raises:
            PeerGoneError: as ``flush``, or the output quota evicted the response.
            FrameTooLargeError: as ``flush``.
        """
        if self.try_flush():
            return
        n_bytes = self._count_unwritten()
        with self._output_quota.reserve(self._caller, n_bytes) as scope:
            await self._flush_rest()
        if scope.cancelled_caught:
            raise PeerGoneError

    def _write_now(self) -> None:
        unsent = self._unsent
        while self._queued and len(unsent) < WRITE_BYTES:
            unsent += self._encode(self._queued.popleft())
        if not unsent:
            return
        part = unsent if len(unsent) <= WRITE_BYTES else unsent[:WRITE_BYTES]
        try:
            n_written = os.write(self._stream.socket.fileno(), part)
        except BlockingIOError:
            return
        del unsent[:n_written]

    def _count_unwritten(self) -> int:
        """Estimate the unwritten bytes, not counting the id of each frame."""
        return len(self._unsent) + sum(map(self._size, self._queued))

    def _size(self, part: Response | bytes) -> int:
        if isinstance(part, bytes):
            return len(part)
        return len(self._encode(msgspec.structs.replace(part, id="")))

    def _encode(self, part: Response | bytes) -> bytes:
        """Encode a frame; where it is too large, make way for an error frame."""
        if isinstance(part, bytes):
            return part
        try:
            return encode(part)
        except FrameTooLargeError:
            self._queued.clear()
            self.is_over = False
            raise


def error_frame(request_id: str, error: InferdError) -> ErrorFrame:
    """Make the frame of an error, with its message cut to ``MAX_ERROR_CHARS``."""
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
        case BackendUnavailableError(retry_after_ms=int(retry_after_ms)):
            return msgspec.structs.replace(frame, retry_after_ms=retry_after_ms)
        case ModelNotFoundError(models=models, described=described):
            facts = [each for each in described if isinstance(each, OfferedFacts)]
            return msgspec.structs.replace(
                frame, models=models, described=facts or UNSET
            )
        case _:
            return frame
