"""Demultiplexer: the messages of a worker, by job."""

from collections import deque
from typing import NamedTuple

from msgspec.structs import replace

from inferd.backend.interface import CacheReuse
from inferd.engine.channel.result_queue import ResultQueue
from inferd.errors import BackendUnavailableError
from inferd.ipc.worker import (
    Embedded,
    Ended,
    Failed,
    PromptOverflow,
    PromptReady,
    Refused,
    Scored,
    Step,
    Transcribed,
    TranscriptEnded,
)
from inferd.wire.responses import DraftCounts, Logprob


class PrefillProgress(NamedTuple):
    """How much of a job's prompt is processed, in tokens."""

    processed: int


class QueuePosition(NamedTuple):
    """A paused job's position in the queue."""

    position: int


class TokenId(NamedTuple):
    """The id of the next token, whose piece follows."""

    id: int


JobUpdate = (
    CacheReuse
    | DraftCounts
    | PrefillProgress
    | QueuePosition
    | Logprob
    | TokenId
    | bytes
)
JobEnd = Ended | Embedded | Scored | TranscriptEnded
JobMessage = (
    PromptReady | Refused | PromptOverflow | JobUpdate | Transcribed | JobEnd | Failed
)


class WorkerDiedError(BackendUnavailableError):
    """The worker is gone, and all its jobs with it."""


class Demultiplexer:
    """One result queue for each open job. Messages for other jobs are ignored."""

    def __init__(self) -> None:
        self._queues: dict[int, ResultQueue[JobMessage]] = {}
        self._finished: set[int] = set()
        self._to_hand_over: list[ResultQueue[JobMessage]] = []
        self._failure: str | None = None
        self.has_served = False
        """Whether any job has finished."""

    def __contains__(self, ticket: int) -> bool:
        return ticket in self._queues

    def open(self, ticket: int) -> ResultQueue[JobMessage]:
        """Open a job's queue, if it is not open; it fails at once if the worker is gone."""
        queue = self._queues.setdefault(ticket, ResultQueue())
        if self._failure is not None:
            queue.fail(WorkerDiedError(self._failure))
        return queue

    def close(self, ticket: int) -> bool:
        """Close an open job's queue; tell whether the job had finished."""
        del self._queues[ticket]
        is_finished = ticket in self._finished
        self._finished.discard(ticket)
        return is_finished

    def fail_all(self, reason: str) -> None:
        """Fail the queues of all open jobs, and of all that are opened later."""
        self._failure = reason
        for queue in self._queues.values():
            queue.fail(WorkerDiedError(reason))
        self._queues.clear()

    def put_queue_position(self, ticket: int, position: int) -> None:
        """Put a job's queue position, in place of one that was not taken yet."""
        queue = self._queues.get(ticket)
        if queue is None:
            return
        if isinstance(queue.last, QueuePosition):
            queue.replace_last(QueuePosition(position))
        else:
            queue.put(QueuePosition(position))

    def hand_over(self) -> None:
        """Hand over what was put since the last call to those who take it in this task.

        Called when all messages that have arrived are put, so that each job's results are
        handed over together.
        """
        queues, self._to_hand_over = self._to_hand_over, []
        for queue in queues:
            queue.hand_over()

    def put_step(self, step: Step) -> None:
        """Put the parts of a step: what is known of a token comes before its piece."""
        for started in step.started:
            self.put(started.ticket, started.reuse)
        for ticket, n_tokens in step.prefilled:
            self.put(ticket, PrefillProgress(n_tokens))
        for ticket, counts in step.drafted:
            self.put(ticket, counts)
        logprobs, token_ids = deque(step.logprobs), deque(step.token_ids)
        for ticket, piece in step.pieces:
            if logprobs and logprobs[0][0] == ticket:
                self.put(*logprobs.popleft())
            if token_ids and token_ids[0][0] == ticket:
                self.put(ticket, TokenId(token_ids.popleft()[1]))
            self.put(ticket, piece)
        for end in step.ended:
            self.finish(end.ticket, end)

    def put_transcribed(self, message: Transcribed) -> None:
        """Put segments; they replace a last item that has nothing but provisional text.

        So no more items wait for a client that does not read than there are segments, each
        of which is charged for along with the provisional text after it.
        """
        queue = self._queues.get(message.ticket)
        if queue is None:
            return
        before = queue.last
        if isinstance(before, Transcribed) and not before.segments:
            n_bytes = max(before.n_bytes_read, message.n_bytes_read)
            queue.replace_last(replace(message, n_bytes_read=n_bytes))
        else:
            queue.put(message)

    def finish(self, ticket: int, message: JobEnd) -> None:
        """Put the last result of a job that ran to its end."""
        self.has_served = True
        if ticket in self._queues:
            self._finished.add(ticket)
        self.put_final(ticket, message)

    def put(self, ticket: int, message: JobMessage) -> None:
        """Put a result of a job, if it is open."""
        queue = self._queues.get(ticket)  # dropped jobs may still get messages
        if queue is not None and queue.add(message):
            self._to_hand_over.append(queue)

    def put_final(self, ticket: int, message: JobMessage) -> None:
        """Put the last result of a job, if it is open."""
        if queue := self._queues.get(ticket):
            queue.put_final(message)
