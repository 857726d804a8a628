"""Answers while they are generated, for threads."""

from collections.abc import Callable, Generator, Iterator
from typing import cast

from inferd.client.closing import ClosedOnLeaving
from inferd.client.core.answer import AnswerCollector, Event, FinalAnswer, TextEvent
from inferd.client.core.failures import ClientError
from inferd.client.frames import BlocksAnswer
from inferd.wire.responses import Response


class ChatStream(ClosedOnLeaving):
    """An answer while it is generated: iterating yields its text.

    Use it in a ``with`` block: leaving the block before the end cancels the request. It is
    sent when the block is entered, or with the first part that is asked for.

    Ownership: one thread iterates; any may call ``cancel``.
    """

    def __init__(
        self, frames: Generator[Response, None, None], cancel: Callable[[], bool]
    ) -> None:
        self._frames = frames
        self._cancel = cancel
        self._collector = AnswerCollector()

    def __iter__(self) -> Iterator[str]:
        for event in self.events():
            if isinstance(event, TextEvent):
                yield event.text

    def events(self) -> Iterator[Event]:
        """Yield the parts of the answer as they come.

        Raises:
            ClientError: the answer failed; ``text`` has what came before.
        """
        for frame in self._frames:
            event = self._collector.read(cast("BlocksAnswer", frame))
            if event is not None:
                yield event

    @property
    def text(self) -> str:
        """The text that has come so far."""
        return self._collector.text

    def final(self) -> FinalAnswer:
        """Read the answer to its end and return all of it.

        Raises:
            ClientError: the answer failed, or the stream was closed before its end.
        """
        for _ in self.events():
            pass
        if not self._collector.is_done:
            raise ClientError("the stream was closed before the answer's end")
        return self._collector.answer()

    def cancel(self) -> bool:
        """Have the daemon end the answer, from any thread.

        The thread that iterates gets what was generated before; ``final().stop_reason`` is
        then ``cancelled``.

        Returns:
            Whether it was in progress.
        """
        return self._cancel()

    def close(self) -> None:
        """Cancel the request, unless its answer has ended."""
        self._frames.close()
