"""What all streams of a running job's events do, whatever its answers say."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Final, Generic, TypeVar

from inferd.backend import Reuse
from inferd.engine.answers import Answer, Place
from inferd.engine.mailbox import Mailbox
from inferd.errors import InternalError, InvalidRequestError
from inferd.events import MalformedToolCall, Queued, TokenEvent, TokenEventV2
from inferd.ipc import Failed
from inferd.wire.responses import Guesses, StopReason, StopReasonV2, Usage, UsageV2

E = TypeVar("E", TokenEvent, TokenEventV2)

REASONS_V2: Final[dict[StopReason, StopReasonV2]] = {
    "end": "end_turn",
    "length": "max_tokens",
}


class AnswerStream(ABC, Generic[E]):
    """A job's answers as events, up to its end.

    Args:
        box: of the answers.
    """

    def __init__(self, box: Mailbox[Answer]) -> None:
        self._box = box
        self._is_over = False
        self.n_tokens = 0
        self.first_token_at: float | None = None
        self.warnings: Sequence[MalformedToolCall] = ()
        self.reuse = Reuse()
        self.guesses = Guesses()

    def __aiter__(self) -> AsyncIterator[Sequence[E]]:
        return self

    def until_over(self) -> AbstractContextManager[None]:
        """Cut short what is inside once the worker has said all."""
        return self._box.until_over()

    async def __anext__(self) -> Sequence[E]:
        if self._is_over:
            raise StopAsyncIteration
        events: list[E] = []
        while not events:
            for answer in await self._box.take():
                if self._is_over:  # a stop string may be found before the last one
                    break
                if isinstance(answer, Failed):
                    raise _error_of(answer)
                if isinstance(answer, Place):
                    events.append(Queued(answer.position))
                else:
                    events += self._events_of(answer)
        return events

    @abstractmethod
    def _events_of(self, answer: Answer) -> Iterable[E]:
        """Make events of an answer; note whether it is the last one."""


def usage_v2(usage: Usage) -> UsageV2:
    """Name what was used as v2 does."""
    return UsageV2(usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens)


def _error_of(failed: Failed) -> InvalidRequestError | InternalError:
    kind = InvalidRequestError if failed.by_request else InternalError
    return kind(failed.reason)
