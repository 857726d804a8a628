"""The base of all event streams of a running job."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Final, Generic, TypeVar

from inferd.backend.events import (
    MalformedToolCall,
    PausedPosition,
    TokenEvent,
    TokenEventV2,
)
from inferd.backend.interface import CacheReuse
from inferd.engine.channel.demultiplexer import JobMessage, QueuePosition
from inferd.engine.channel.result_queue import ResultQueue
from inferd.errors import (
    BackendUnavailableError,
    ContextOverflowError,
    InternalError,
    InvalidRequestError,
)
from inferd.ipc.worker import Failed
from inferd.wire.responses import DraftCounts, StopReason, StopReasonV2, Usage, UsageV2

E = TypeVar("E", TokenEvent, TokenEventV2)

STOP_REASONS_V2: Final[dict[StopReason, StopReasonV2]] = {
    "end": "end_turn",
    "length": "max_tokens",
}


class AnswerStream(ABC, Generic[E]):
    """A job's results as events, up to its end.

    Args:
        results: of the job.
    """

    def __init__(self, results: ResultQueue[JobMessage]) -> None:
        self._results = results
        self._is_over = False
        self._has_begun = False
        """Whether a token had come before the results that are converted now."""
        self._failure: Exception | None = None
        self.n_tokens = 0
        self.n_first_tokens = 0
        self.first_token_at: float | None = None
        self.warnings: Sequence[MalformedToolCall] = ()
        self.reuse = CacheReuse()
        self.draft_counts = DraftCounts()

    @property
    def unsent_token_ids(self) -> Sequence[int]:
        """Ids of the tokens that no event had so far, if they were requested."""
        return ()

    def __aiter__(self) -> AsyncIterator[Sequence[E]]:
        return self

    def until_over(self) -> AbstractContextManager[None]:
        """Return a context that cancels its body once the worker has finished."""
        return self._results.until_over()

    async def __anext__(self) -> Sequence[E]:
        if self._is_over:
            raise StopAsyncIteration
        events: list[E] = []
        while not events:
            self._check()
            events += self._convert(await self._results.get_all())
        return events

    async def forward(self, send: Callable[[Iterable[E]], bool]) -> bool:
        """Have a function called with the events as their results come; see ``EventStream``."""

        def take(results: list[JobMessage]) -> bool:
            is_sent = send(self._convert(results))
            if is_sent:
                self._check()
            return is_sent and not self._is_over

        self._check()
        if not self._is_over:
            await self._results.pass_to(take)
        return not self._is_over

    def _check(self) -> None:
        """Raise the failure that followed the results which were taken last."""
        if self._failure is not None:
            raise self._failure

    def _convert(self, results: Iterable[JobMessage]) -> Iterator[E]:
        """Yield the events of results that have come together."""
        self._has_begun = self.n_tokens > 0
        for result in results:
            if self._is_over:  # a stop string may end the answer before its last result
                break
            if isinstance(result, Failed):  # what came with it is told first
                self._failure = error_of(result)
                break
            if isinstance(result, QueuePosition):
                yield PausedPosition(result.position)
            else:
                yield from self._events_of(result)

    def _count(self, n_tokens: int) -> None:
        """Count tokens that have come."""
        self.n_tokens += n_tokens
        if not self._has_begun:
            self.n_first_tokens += n_tokens

    @abstractmethod
    def _events_of(self, result: JobMessage) -> Iterable[E]:
        """Make events of a result; note whether it is the last one."""


def to_usage_v2(usage: Usage) -> UsageV2:
    """Convert token counts to their form in v2."""
    return UsageV2(
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.cached_tokens,
        is_estimate=usage.is_estimate,
    )


def error_of(
    failed: Failed,
) -> InvalidRequestError | InternalError | BackendUnavailableError:
    """Make the error of a job that failed in its worker."""
    if (over := failed.overflow) is not None:
        return ContextOverflowError(
            over.prompt_tokens, over.n_ctx, answer_tokens=over.answer_tokens
        )
    if failed.is_unavailable:
        return BackendUnavailableError(
            failed.reason, retry_after_ms=failed.retry_after_ms
        )
    kind = InvalidRequestError if failed.by_request else InternalError
    return kind(failed.reason)
