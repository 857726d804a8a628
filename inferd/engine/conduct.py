"""Hold a worker to what it was asked: whatever else it says is a lie.

A worker runs native code on clients' texts and operators' files, so that anything may
come out of its pipe. Its messages have the right types once they are decoded; here it is
seen whether they make sense, and how many they are. What a job may be told is bounded, so
what waits for its client is, too. Knows no clock and does no I/O.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from inferd.engine.transcript import Transcript
from inferd.ipc import (
    Alive,
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
from inferd.job import GenerateJob, Job, TranscribeJob
from inferd.limits import (
    IPC_CHATTER_MESSAGES,
    IPC_CHATTER_PER_S,
    JOB_ANSWER_BYTES,
    JOB_ITEM_BYTES,
)
from inferd.wire.responses import Alternative, Logprob, Usage


class SessionOverError(Exception):
    """Why a session is over; the whole text is for the operator.

    Args:
        reason: what clients may read of it.
        complaint: what else there is to say.
        whole: the reason in other words, where clients are told less.
    """

    def __init__(self, reason: str, complaint: str = "", *, whole: str = "") -> None:
        told = whole or reason
        super().__init__(f"{told}: {complaint}" if complaint else told)
        self.reason = reason


class LieError(SessionOverError):
    """The worker said what it cannot know, or should not say."""

    def __init__(self, lie: str) -> None:
        super().__init__("broke the protocol", lie)


@dataclass(slots=True)
class _Open:
    """A job that may be spoken of."""

    bytes_left: int
    is_over: bool = False
    transcript: Transcript | None = None
    """Of speech that is to be written down."""


class Conduct:
    """Hears all that one worker says of its jobs.

    Bounds:
        A few numbers for each open job.
    """

    def __init__(self) -> None:
        self._jobs: dict[int, _Open] = {}
        self._highest = -1
        self._preparing: dict[int, bool] = {}  # whether each is one that writes
        self._n_ctx = 0
        self._chatter_left = float(IPC_CHATTER_MESSAGES)
        self._chatted_at = 0.0

    # --- what it is asked -------------------------------------------------------------

    def loaded(self, n_ctx: int) -> None:
        """Take note of the tokens that one request may take; 0 for no bound."""
        self._n_ctx = n_ctx

    def opened(self, ticket: int) -> None:
        """A job may be spoken of from here on."""
        self._jobs.setdefault(ticket, _Open(JOB_ANSWER_BYTES))
        self._highest = max(self._highest, ticket)

    def closed(self, ticket: int) -> None:
        """What is still said of a job has crossed with our telling that it is dropped."""
        self._jobs.pop(ticket, None)

    def asked(self, ticket: int, job: Job) -> None:
        """A job is to be prepared: the worker owes one answer to that."""
        self._preparing[ticket] = isinstance(job, GenerateJob)
        open_job = self._jobs.setdefault(ticket, _Open(JOB_ANSWER_BYTES))
        self._highest = max(self._highest, ticket)
        if isinstance(job, TranscribeJob):
            open_job.transcript = Transcript.of(job)
        if isinstance(job, GenerateJob) and job.n_alternatives:
            n_tokens = min(job.max_tokens, self._n_ctx or job.max_tokens)
            per_token = (job.n_alternatives + 2) * 4 * JOB_ITEM_BYTES
            open_job.bytes_left = JOB_ANSWER_BYTES + n_tokens * per_token

    def appended(self, ticket: int, n_bytes: int) -> None:
        """A job's sound has so many bytes by now."""
        if (known := self._jobs.get(ticket)) and known.transcript is not None:
            known.transcript.appended(n_bytes)

    # --- what it says -----------------------------------------------------------------

    def heard(self, message: FromWorker, now: float) -> None:
        """Judge a message of a worker that serves.

        Args:
            message: what it said.
            now: seconds on any clock that only goes on.

        Raises:
            LieError: it is one.
        """
        n_idle = 0
        match message:
            case Step():
                n_idle = self._hear_step(message)
            case Embedded() | Scored():
                n_idle = self._hear_result(message)
            case Transcribed() | TranscriptEnded():
                n_idle = self._hear_speech(message)
            case PromptReady() | Refused() | Overflow():
                self._hear_answer(message)
            case Failed(ticket=ticket):
                n_idle = self._hear_failure(ticket)
            case Alive():
                n_idle = 1
            case _:
                raise LieError(f"{type(message).__name__} out of turn")
        if n_idle:
            self._bear(n_idle, now)

    def _hear_step(self, step: Step) -> int:
        """Judge a step; give how much of it was said of no open job."""
        n_idle = 0
        for started in step.started:
            _refuse_absurd(started.reuse.cached_tokens)
            _refuse_absurd(started.reuse.saved_bytes)
            n_idle += self._charge(started.ticket, 0)
        for ticket, piece in step.pieces:
            n_idle += self._charge(ticket, len(piece))
        for ticket, logprob in step.logprobs:
            n_idle += self._charge(ticket, _size_of(logprob))
        for ticket, n_tokens in step.prefilled:
            _refuse_absurd(n_tokens)
            n_idle += self._charge(ticket, 0)
        for ticket, guesses in step.guessed:
            _refuse_absurd(guesses.accepted_tokens, guesses.drafted_tokens)
            n_idle += self._charge(ticket, 0)
        for end in step.ended:
            self._refuse_odd_end(end)
            n_idle += self._end(end.ticket, 0)
        return n_idle or (step == Step(n_read=step.n_read))

    def _hear_result(self, result: Embedded | Scored) -> int:
        match result:
            case Scored(scores=scores):
                if not all(map(math.isfinite, scores)):
                    raise LieError("a score that is no number")
                return self._end(result.ticket, JOB_ITEM_BYTES * len(scores))
            case Embedded(embeddings=embeddings, is_last=is_last):
                if b"\n" in embeddings:  # it goes out as it is, and a line is a frame
                    raise LieError("vectors of more than a line")
                charge = self._end if is_last else self._charge
                return charge(result.ticket, len(embeddings))

    def _hear_speech(self, said: Transcribed | TranscriptEnded) -> int:
        """Judge what was heard; what may change yet is chatter, if it comes alone."""
        known = self._known(said.ticket)
        if known is None:
            return 1
        if known.transcript is None:
            raise LieError("speech of a job that has none")
        if fault := known.transcript.fault_in(said):
            raise LieError(fault)
        match said:
            case TranscriptEnded():
                _refuse_absurd(said.computing_ms)
                _refuse_odd_usage(said.usage)
                return self._end(said.ticket, len(said.language))
            case Transcribed():
                _refuse_absurd(said.n_tokens)
                self._charge_for_segments(said)
                return not said.segments

    def _charge_for_segments(self, said: Transcribed) -> None:
        for segment in said.segments:
            self._charge(said.ticket, len(segment.text))
        if said.segments and said.partial is not None:  # both are kept
            self._charge(said.ticket, len(said.partial.text))

    def _hear_answer(self, answer: PromptReady | Refused | Overflow) -> None:
        if answer.ticket not in self._preparing:
            raise LieError("an answer to a prompt that it was not asked")
        is_bounded = self._preparing.pop(answer.ticket) and self._n_ctx
        if isinstance(answer, PromptReady) and is_bounded:
            _refuse_absurd(answer.prompt_tokens, self._n_ctx)

    def _hear_failure(self, ticket: int) -> int:
        if ticket not in self._preparing:
            return self._end(ticket, 0)
        del self._preparing[ticket]
        return 0

    def _charge(self, ticket: int, n_bytes: int) -> int:
        """Count something that is said of a job; 1 if that is not open any more."""
        known = self._known(ticket)
        if known is None:
            return 1
        known.bytes_left -= JOB_ITEM_BYTES + n_bytes
        if known.bytes_left < 0:
            raise LieError(f"no answer is as long as that of job {ticket}")
        return 0

    def _known(self, ticket: int) -> _Open | None:
        """Find an open job of which something is said."""
        known = self._jobs.get(ticket)
        if known is None and ticket > self._highest:
            raise LieError(f"job {ticket} was never given to it")
        if known is not None and known.is_over:
            raise LieError(f"job {ticket} was over")
        return known

    def _end(self, ticket: int, n_bytes: int) -> int:
        n_idle = self._charge(ticket, n_bytes)
        if not n_idle:
            self._jobs[ticket].is_over = True
        return n_idle

    def _refuse_odd_end(self, end: Ended) -> None:
        usage = end.usage
        _refuse_odd_usage(usage)
        if 0 < self._n_ctx < usage.prompt_tokens + usage.completion_tokens - 1:
            raise LieError(f"more tokens than the {self._n_ctx} of its context")

    def _bear(self, n_idle: int, now: float) -> None:
        """Bear what is said of no open job, for a while: some of it has crossed."""
        regained = (now - self._chatted_at) * IPC_CHATTER_PER_S
        self._chatted_at = now
        left = min(IPC_CHATTER_MESSAGES, self._chatter_left + regained) - n_idle
        self._chatter_left = left
        if left < 0:
            raise LieError("endless chatter")


_MOST = 2**53
"""What every reader of JSON can hold."""


def _refuse_absurd(*ascending: int) -> None:
    """Refuse counts that are none, or where a part is more than the whole."""
    below = 0
    for each in ascending:
        if not below <= each <= _MOST:
            raise LieError(f"a count of {each}")
        below = each


def _refuse_odd_usage(usage: Usage) -> None:
    _refuse_absurd(usage.cached_tokens, usage.prompt_tokens)
    _refuse_absurd(usage.completion_tokens)
    _refuse_absurd(*_guessed(usage))


def _guessed(usage: Usage) -> Iterable[int]:
    counts = (usage.accepted_tokens, usage.drafted_tokens)
    return (each for each in counts if isinstance(each, int))


def _size_of(logprob: Logprob) -> int:
    """Tell about how many bytes a token's alternatives take."""
    alternatives: list[Alternative] = [logprob, *logprob.top_logprobs]
    return sum(
        JOB_ITEM_BYTES + len(each.token) + len(each.bytes) for each in alternatives
    )
