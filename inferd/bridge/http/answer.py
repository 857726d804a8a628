"""Have the daemon answer a question, and send the answer as it comes."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

import trio

from inferd.bridge.http.exchange import HttpExchange
from inferd.bridge.translation.failures import BridgeError
from inferd.bridge.translation.question import DaemonFrame, Question, StreamForm
from inferd.bridge.upstream.daemon import DaemonClient
from inferd.limits.bridge import KEEP_ALIVE_S, QUIET_START_S
from inferd.wire.responses import ProgressFrame

POSITION_HEADER: Final = "x-inferd-queue-position"
"""The position in the daemon's queue that a request had at first; only if it waited."""


async def answer(
    exchange: HttpExchange,
    question: Question,
    daemon: DaemonClient,
    principal: str,
    form: StreamForm | None,
) -> None:
    """Answer a request; the caller cancels it when the client hangs up.

    Args:
        exchange: the request.
        question: what it asks.
        daemon: answers.
        principal: who asks.
        form: of a streamed answer.

    Raises:
        BridgeError: it failed, and nothing has been sent yet.
    """
    async with aclosing(_noting(exchange, daemon.ask(question, principal))) as frames:
        if question.is_streamed and form is not None:
            await _Streaming(exchange, question, form).run(frames)
            return
        async for frame in frames:
            for _ in question.answer.add(frame):
                pass
    await exchange.respond(
        200, question.answer.whole(), question.content_type, timing(exchange)
    )


async def _noting(
    exchange: HttpExchange, frames: AsyncGenerator[DaemonFrame, None]
) -> AsyncGenerator[DaemonFrame, None]:
    """Pass frames on; note the position in the daemon's queue at which the request began."""
    async with aclosing(frames):
        async for frame in frames:
            if isinstance(frame, ProgressFrame) and isinstance(frame.position, int):
                exchange.extra_headers.setdefault(POSITION_HEADER, str(frame.position))
            yield frame


def timing(exchange: HttpExchange) -> dict[str, str]:
    """Return the header with the time that an answer took to begin."""
    return {"openai-processing-ms": f"{exchange.elapsed_ms:.0f}"}


@dataclass
class _Streaming:
    """Sends the events of an answer.

    The status line is sent with the first of them, or after ``QUIET_START_S``; then a
    silence has comments in it, and a failure is an event.
    """

    exchange: HttpExchange
    question: Question
    form: StreamForm
    _writing: trio.Lock = field(default_factory=trio.Lock)
    _last: float = field(default_factory=trio.current_time)
    """When something was sent; at first, when the request came."""

    async def run(self, frames: AsyncGenerator[DaemonFrame, None]) -> None:
        failure: BridgeError | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_alive)
            try:
                await self._send_all(frames)
            except BridgeError as error:  # a nursery would make a group of it
                failure = error
            async with self._writing:  # no comment is cut, nor the status line
                nursery.cancel_scope.cancel()
        if failure is not None and not self.exchange.has_begun:
            raise failure
        if failure is not None:
            self.exchange.error = failure.reason.value
            tell = self.question.failure_event or self.form.failure_event
            await self._write(tell(failure))
        await self.exchange.end_stream()

    async def _send_all(self, frames: AsyncGenerator[DaemonFrame, None]) -> None:
        async for frame in frames:
            for data in self.question.answer.add(frame):
                await self._write(data)
        for data in self.question.answer.end():
            await self._write(data)

    async def _keep_alive(self) -> None:
        while True:
            pause_s = KEEP_ALIVE_S if self.exchange.has_begun else QUIET_START_S
            await trio.sleep_until(self._last + pause_s)
            if trio.current_time() >= self._last + pause_s:
                await self._write(self.form.keep_alive)

    async def _write(self, data: bytes) -> None:
        async with self._writing:
            if not self.exchange.has_begun:
                self.exchange.extra_headers.update(timing(self.exchange))
                await self.exchange.begin_stream(self.form.content_type)
            await self.exchange.write(data)
            self._last = trio.current_time()
