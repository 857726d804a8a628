"""Answers while they are generated, for tasks."""

from collections import deque
from collections.abc import AsyncIterator
from typing import cast

import anyio

from inferd.client.closing import AsyncClosedOnLeaving
from inferd.client.core.answer import AnswerCollector, Event, FinalAnswer, TextEvent
from inferd.client.core.failures import ClientError
from inferd.client.core.plans import AnySurface
from inferd.client.core.retries import Retries
from inferd.client.frames import BlocksAnswer
from inferd.client.library.async_sockets import AsyncAnswer, AsyncTransport
from inferd.wire.requests import Request
from inferd.wire.responses import Response


class AsyncChatStream(AsyncClosedOnLeaving):
    """An answer while it is generated: iterating yields its text.

    Use it in an ``async with`` block: leaving the block before the end, cancelled or not,
    cancels the request. It is sent with the first part that is asked for.

    Ownership: one task iterates; others may call ``cancel``.
    """

    def __init__(self, frames: "AsyncFrames") -> None:
        self._frames = frames
        self._collector = AnswerCollector()

    async def __aiter__(self) -> AsyncIterator[str]:
        async for event in self.events():
            if isinstance(event, TextEvent):
                yield event.text

    async def events(self) -> AsyncIterator[Event]:
        """Yield the parts of the answer as they come.

        Raises:
            ClientError: the answer failed; ``text`` has what came before.
        """
        while (frame := await self._frames.next_frame()) is not None:
            event = self._collector.read(cast("BlocksAnswer", frame))
            if event is not None:
                yield event

    @property
    def text(self) -> str:
        """The text that has come so far."""
        return self._collector.text

    async def final(self) -> FinalAnswer:
        """Read the answer to its end and return all of it.

        Raises:
            ClientError: the answer failed, or the stream was closed before its end.
        """
        async for _ in self.events():
            pass
        if not self._collector.is_done:
            raise ClientError("the stream was closed before the answer's end")
        return self._collector.answer()

    async def cancel(self) -> bool:
        """Have the daemon end the answer, from any task.

        The task that iterates gets what was generated before; the ``stop_reason`` of
        ``final`` is then ``cancelled``.

        Returns:
            Whether it was in progress.
        """
        return await self._frames.cancel()

    async def aclose(self) -> None:
        """Cancel the request, unless its answer has ended."""
        await self._frames.aclose()


class AsyncFrames:
    """The frames of one request, which is sent again if it is refused.

    Args:
        transport: what carries it.
        surface: the kind of requests.
        request: to send.
        retries: how often it may be sent again.
    """

    def __init__(
        self,
        transport: AsyncTransport,
        surface: AnySurface,
        request: Request,
        retries: Retries,
    ) -> None:
        self._transport = transport
        self._surface = surface
        self._request = request
        self._retries = retries
        self._answer: AsyncAnswer | None = None
        self._frames: deque[Response] = deque()
        self._is_closed = False

    async def next_frame(self) -> Response | None:
        """Return the next frame; ``None`` at the end."""
        if not self._frames and not self._is_closed:
            await self._read()
        return self._frames.popleft() if self._frames else None

    async def all(self) -> AsyncIterator[Response]:
        """Yield the frames up to the end."""
        while (frame := await self.next_frame()) is not None:
            yield frame

    async def begin(self) -> AsyncAnswer:
        """Send the request, unless it is sent."""
        if self._answer is None:
            self._answer = await self._transport.ask(self._surface, self._request)
        return self._answer

    async def _read(self) -> None:
        has_begun = self._answer is not None
        while True:
            try:
                answer = await self.begin()
                self._frames.extend(await answer.next_frames())
            except ClientError as error:
                self._answer = None
                pause = None if has_begun else self._retries.pause_after(error)
                if pause is None:
                    self._is_closed = True
                    raise
            else:
                return
            await anyio.sleep(pause)

    async def cancel(self) -> bool:
        """Have the daemon end the answer; tell whether it was in progress."""
        return self._answer is not None and await self._answer.cancel()

    async def aclose(self) -> None:
        """Cancel the request, unless its answer has ended."""
        self._is_closed = True
        self._frames.clear()
        if self._answer is not None:
            await self._answer.aclose()
