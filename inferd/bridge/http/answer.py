"""Send an answer as its frames come."""

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

import trio

from inferd.bridge.http.exchange import HttpExchange
from inferd.bridge.translation.failures import BridgeError
from inferd.bridge.translation.question import StreamForm
from inferd.client.connection.lock import take
from inferd.limits.bridge import KEEP_ALIVE_S, QUIET_START_S
from inferd.wire.responses import ProgressFrame

POSITION_HEADER: Final = "x-inferd-queue-position"
"""The position in the daemon's queue that a request had at first; only if it waited."""

F_contra = TypeVar("F_contra", contravariant=True)


class FrameAnswer(Protocol[F_contra]):
    """The form of an answer, as of the daemon or of the helper."""

    def add(self, frame: F_contra) -> Iterator[bytes]:
        """Take a frame; yield the parts of a streamed answer that follow from it."""

    def end(self) -> Iterator[bytes]:
        """Yield the parts that end a streamed answer."""

    def whole(self) -> bytes:
        """Return the body of an answer that is not streamed."""


class Translated(Protocol[F_contra]):
    """A translated request."""

    @property
    def answer(self) -> FrameAnswer[F_contra]:
        """The form of its answer."""

    @property
    def is_streamed(self) -> bool:
        """Whether that is a stream."""

    @property
    def content_type(self) -> str:
        """Media type of an answer that is not streamed."""

    @property
    def failure_event(self) -> Callable[[BridgeError], bytes] | None:
        """The event that ends the stream if it fails; ``None`` for that of the API."""


async def answer(
    exchange: HttpExchange,
    question: Translated[F_contra],
    answered: AsyncGenerator[Sequence[F_contra], None],
    form: StreamForm | None,
    beside: trio.Nursery,
) -> None:
    """Answer a request; the caller cancels it when the client hangs up.

    Args:
        exchange: the request.
        question: what it asks.
        answered: the frames of the answer, in batches that have come together; it is closed
            at the end.
        form: of a streamed answer.
        beside: for what runs meanwhile; the caller cancels it afterwards.

    Raises:
        BridgeError: it failed, and nothing has been sent yet.
    """
    async with aclosing(answered) as batches:
        if question.is_streamed and form is not None:
            await _Streaming(exchange, question, form, beside).run(batches)
            return
        async for frames in batches:
            for frame in frames:
                _note_position(exchange, frame)
                for _ in question.answer.add(frame):
                    pass
    await exchange.respond(
        200, question.answer.whole(), question.content_type, timing(exchange)
    )


def _note_position(exchange: HttpExchange, frame: object) -> None:
    """Note the position in the daemon's queue at which a request began."""
    if isinstance(frame, ProgressFrame) and isinstance(frame.position, int):
        exchange.extra_headers.setdefault(POSITION_HEADER, str(frame.position))


def timing(exchange: HttpExchange) -> dict[str, str]:
    """Return the header with the time that an answer took to begin."""
    return {"openai-processing-ms": f"{exchange.elapsed_ms:.0f}"}


@dataclass
class _Streaming(Generic[F_contra]):
    """Sends the events of an answer.

    The status line is sent with the first of them, or after ``QUIET_START_S``; then a
    silence has comments in it, and a failure is an event.
    """

    exchange: HttpExchange
    question: Translated[F_contra]
    form: StreamForm
    beside: trio.Nursery
    _writing: trio.Lock = field(default_factory=trio.Lock)
    """Held while the status line or a comment is written."""
    _last: float = field(default_factory=trio.current_time)
    """When something was sent; at first, when the request came."""
    _is_over: bool = False
    """Whether no comment may follow."""

    async def run(self, batches: AsyncGenerator[Sequence[F_contra], None]) -> None:
        failure: BridgeError | None = None
        self.beside.start_soon(self._keep_alive)
        try:
            await self._send_all(batches)
        except BridgeError as error:
            failure = error
        await take(self._writing)  # no comment is cut, nor the status line
        self._is_over = True
        self._writing.release()
        if failure is not None and not self.exchange.has_begun:
            raise failure
        if failure is not None:
            self.exchange.error = failure.reason.value
            tell = self.question.failure_event or self.form.failure_event
            await self._write(tell(failure))
        await self.exchange.end_stream()

    async def _send_all(
        self, batches: AsyncGenerator[Sequence[F_contra], None]
    ) -> None:
        """Send the events of each batch with one write."""
        async for frames in batches:
            events: list[bytes] = []
            try:
                for frame in frames:
                    _note_position(self.exchange, frame)
                    events.extend(self.question.answer.add(frame))
            finally:  # a failure is told behind the events before it
                if events:
                    await self._write(b"".join(events))
        if end := b"".join(self.question.answer.end()):
            await self._write(end, is_last=True)

    async def _keep_alive(self) -> None:
        while not self._is_over:
            pause_s = KEEP_ALIVE_S if self.exchange.has_begun else QUIET_START_S
            await trio.sleep_until(self._last + pause_s)
            async with self._writing:
                is_due = trio.current_time() >= self._last + pause_s
                if is_due and not self._is_over:
                    await self._write_alone(self.form.keep_alive)

    async def _write(self, data: bytes, *, is_last: bool = False) -> None:
        """Write events; the connection writes each part whole, also beside a comment."""
        if self.exchange.has_begun and not self._writing.locked():
            await self._write_alone(data, is_last=is_last)
            return
        async with self._writing:
            await self._write_alone(data, is_last=is_last)

    async def _write_alone(self, data: bytes, *, is_last: bool = False) -> None:
        """Write, behind the status line."""
        if not self.exchange.has_begun:
            self.exchange.extra_headers.update(timing(self.exchange))
            await self.exchange.begin_stream(self.form.content_type)
        await self.exchange.write(data, is_last=is_last)
        self._last = trio.current_time()
