"""What a worker says, sorted by job."""

from typing import NamedTuple

from msgspec.structs import replace

from inferd.backend import Reuse
from inferd.engine.mailbox import Mailbox
from inferd.errors import BackendUnavailableError
from inferd.ipc import (
    Embedded,
    Ended,
    Failed,
    FromWorker,
    Overflow,
    PromptReady,
    Refused,
    Scored,
    Step,
    Transcribed,
    TranscriptEnded,
)
from inferd.wire.responses import Guesses, Logprob


class Prefilled(NamedTuple):
    """How far a job's prompt is: tokens read."""

    processed: int


class Place(NamedTuple):
    """Where a paused job is in the queue."""

    position: int


Told = Reuse | Guesses | Prefilled | Place | Logprob | bytes
End = Ended | Embedded | Scored | TranscriptEnded
Answer = PromptReady | Refused | Overflow | Told | Transcribed | End | Failed


class WorkerDiedError(BackendUnavailableError):
    """The worker is gone; so is every job it had."""


class Answers:
    """A mailbox for each job that is open. What comes for another is ignored."""

    def __init__(self) -> None:
        self._boxes: dict[int, Mailbox[Answer]] = {}
        self._finished: set[int] = set()
        self._over: str | None = None
        self.has_served = False
        """Whether any job has come to its end."""

    def __contains__(self, ticket: int) -> bool:
        return ticket in self._boxes

    def open(self, ticket: int) -> Mailbox[Answer]:
        """Begin to collect a job's; from a dead worker all it gets is that."""
        box = self._boxes.setdefault(ticket, Mailbox())
        if self._over is not None:
            box.fail(WorkerDiedError(self._over))
        return box

    def close(self, ticket: int) -> bool:
        """Collect no more of an open job's; tell whether it was at its end."""
        del self._boxes[ticket]
        is_finished = ticket in self._finished
        self._finished.discard(ticket)
        return is_finished

    def fail_all(self, reason: str) -> None:
        """Tell every open job, and all that are opened later, that the worker is gone."""
        self._over = reason
        for box in self._boxes.values():
            box.fail(WorkerDiedError(reason))
        self._boxes.clear()

    def sort(self, message: FromWorker) -> None:
        """Sort a message that was judged before."""
        match message:
            case Step():
                self._sort_step(message)
            case Embedded(is_last=False) | PromptReady() | Refused() | Overflow():
                self._put(message.ticket, message)
            case Transcribed():
                self._put_speech(message)
            case Embedded() | Scored() | TranscriptEnded():
                self._finish(message.ticket, message)
            case Failed():
                self._put_last(message.ticket, message)
            case _:
                pass  # a sign of life; anything else was refused before

    def put_place(self, ticket: int, position: int) -> None:
        """Put a job's place in the queue, over one that nobody has taken yet."""
        box = self._boxes.get(ticket)
        if box is None:
            return
        if isinstance(box.last, Place):
            box.put_over(Place(position))
        else:
            box.put(Place(position))

    def _sort_step(self, step: Step) -> None:
        for started in step.started:
            self._put(started.ticket, started.reuse)
        for ticket, n_tokens in step.prefilled:
            self._put(ticket, Prefilled(n_tokens))
        for ticket, guesses in step.guessed:
            self._put(ticket, guesses)
        logprobs = list(step.logprobs)
        for ticket, piece in step.pieces:
            if logprobs and logprobs[0][0] == ticket:
                self._put(*logprobs.pop(0))
            self._put(ticket, piece)
        for end in step.ended:
            self._finish(end.ticket, end)

    def _put_speech(self, said: Transcribed) -> None:
        """Put what was heard; what may change takes the place of what has changed since.

        So as much waits for a client who does not read as there are segments, each of
        which is charged for with what may change after it.
        """
        box = self._boxes.get(said.ticket)
        if box is None:
            return
        before = box.last
        if isinstance(before, Transcribed) and not before.segments:
            n_bytes = max(before.n_bytes_read, said.n_bytes_read)
            box.put_over(replace(said, n_bytes_read=n_bytes))
        else:
            box.put(said)

    def _finish(self, ticket: int, answer: End) -> None:
        self.has_served = True
        if ticket in self._boxes:
            self._finished.add(ticket)
        self._put_last(ticket, answer)

    def _put(self, ticket: int, answer: Answer) -> None:
        if box := self._boxes.get(ticket):  # dropped jobs may still have answers coming
            box.put(answer)

    def _put_last(self, ticket: int, answer: Answer) -> None:
        if box := self._boxes.get(ticket):
            box.put_last(answer)
