"""Validate worker messages against the protocol state.

A worker runs native code on clients' texts and operators' files, so that anything may come
out of its socket. Its messages have the right types once they are decoded; this module
checks that they are plausible, and bounds their number and size per job, which also bounds
what waits for the job's client. Knows no clock and does no I/O.
"""

import math
from dataclasses import dataclass

from inferd.backend.job import GenerateJob, Job, TranscribeJob
from inferd.engine.channel.plausibility import (
    ProtocolViolationError,
    SessionEndedError,
    check_counts,
    check_usage,
    logprob_bytes,
)
from inferd.engine.channel.transcript_validator import TranscriptValidator
from inferd.ipc.worker import (
    AudioNeeded,
    Availability,
    Embedded,
    Ended,
    Failed,
    FromWorker,
    Heartbeat,
    Paused,
    PromptOverflow,
    PromptReady,
    Refused,
    Scored,
    Step,
    Transcribed,
    TranscriptEnded,
)
from inferd.limits.engine import (
    IPC_STRAY_BURST,
    IPC_STRAY_PER_S,
    JOB_ANSWER_BYTES,
    JOB_ITEM_BYTES,
)

__all__ = ["MessageValidator", "ProtocolViolationError", "SessionEndedError"]


@dataclass(slots=True)
class _OpenJob:
    """A job for which messages are allowed."""

    bytes_left: int
    is_over: bool = False
    transcript: TranscriptValidator | None = None
    """For a transcription."""
    pause_requested: bool = False


class MessageValidator:
    """Validator of all messages that one worker sends about its jobs.

    Bounds:
        A few numbers for each open job.
    """

    def __init__(self) -> None:
        self._jobs: dict[int, _OpenJob] = {}
        self._last_ticket = -1
        self._preparing: dict[int, bool] = {}  # by ticket, whether it is a generate job
        self._n_ctx = 0
        self._strays_left = float(IPC_STRAY_BURST)
        self._stray_at = 0.0

    # --- requests ---------------------------------------------------------------------

    def loaded(self, n_ctx: int) -> None:
        """Note the tokens that one request may take; 0 for no bound."""
        self._n_ctx = n_ctx

    def job_opened(self, ticket: int) -> None:
        """Allow messages for a job from here on."""
        self._jobs.setdefault(ticket, _OpenJob(JOB_ANSWER_BYTES))
        self._last_ticket = max(self._last_ticket, ticket)

    def job_closed(self, ticket: int) -> None:
        """Count later messages for a job as strays: they crossed with its ``Drop``."""
        self._jobs.pop(ticket, None)

    def prepare_sent(self, ticket: int, job: Job) -> None:
        """Note that a job is to be prepared: the worker owes one reply."""
        self._preparing[ticket] = isinstance(job, GenerateJob)
        open_job = self._jobs.setdefault(ticket, _OpenJob(JOB_ANSWER_BYTES))
        self._last_ticket = max(self._last_ticket, ticket)
        if isinstance(job, TranscribeJob):
            open_job.transcript = TranscriptValidator.of(job)
        if isinstance(job, GenerateJob) and job.n_alternatives:
            n_tokens = min(job.max_tokens, self._n_ctx or job.max_tokens)
            per_token = (job.n_alternatives + 2) * 4 * JOB_ITEM_BYTES
            open_job.bytes_left = JOB_ANSWER_BYTES + n_tokens * per_token

    def pause_sent(self, ticket: int) -> None:
        """Note that a job is to be paused: the worker may report once that it is."""
        if job := self._jobs.get(ticket):
            job.pause_requested = True

    def appended(self, ticket: int, n_bytes: int) -> None:
        """Note the bytes of audio that a job has by now, in all."""
        if (job := self._jobs.get(ticket)) and job.transcript is not None:
            job.transcript.appended(n_bytes)

    # --- replies ----------------------------------------------------------------------

    def validate(  # noqa: C901, PLR0912  # a case for each type of message
        self, message: FromWorker, now: float
    ) -> None:
        """Check a message of a loaded worker.

        Args:
            message: from the worker.
            now: seconds on any monotonic clock.

        Raises:
            ProtocolViolationError: the message is not allowed.
        """
        n_stray = 0
        match message:
            case Step():
                n_stray = self._check_step(message)
            case Embedded():
                n_stray = self._check_embedded(message)
            case Scored():
                n_stray = self._check_scored(message)
            case Transcribed() | TranscriptEnded():
                n_stray = self._check_transcript(message)
            case PromptReady() | Refused() | PromptOverflow():
                self._check_prepare_reply(message)
            case Failed(ticket=ticket):
                n_stray = self._check_failed(ticket)
            case Paused(ticket=ticket):
                n_stray = self._check_paused(ticket)
            case AudioNeeded(ticket=ticket):
                n_stray = self._check_audio_needed(ticket)
            case Heartbeat() | Availability():
                n_stray = 1
            case _:
                raise ProtocolViolationError(f"unexpected {type(message).__name__}")
        if n_stray:
            self._charge_stray(n_stray, now)

    def _check_step(self, step: Step) -> int:
        """Check a step; return the number of its items for jobs that are not open."""
        n_stray = 0
        for started in step.started:
            check_counts(started.reuse.cached_tokens)
            check_counts(started.reuse.saved_bytes)
            n_stray += self._charge(started.ticket, 0)
        for ticket, piece in step.pieces:
            n_stray += self._charge(ticket, len(piece))
        for ticket, logprob in step.logprobs:
            n_stray += self._charge(ticket, logprob_bytes(logprob))
        for ticket, _ in step.token_ids:
            n_stray += self._charge(ticket, 0)
        for ticket, n_tokens in step.prefilled:
            check_counts(n_tokens)
            n_stray += self._charge(ticket, 0)
        for ticket, counts in step.drafted:
            check_counts(counts.accepted_tokens, counts.drafted_tokens)
            n_stray += self._charge(ticket, 0)
        for end in step.ended:
            self._check_end(end)
            n_stray += self._end(end.ticket, 0)
        return n_stray or not (
            step.pieces
            or step.prefilled
            or step.started
            or step.ended
            or step.drafted
            or step.logprobs
            or step.token_ids
        )

    def _check_embedded(self, result: Embedded) -> int:
        if b"\n" in result.embeddings:  # sent on unchanged, and a line is a frame
            raise ProtocolViolationError("vectors of more than a line")
        charge = self._end if result.is_last else self._charge
        return charge(result.ticket, len(result.embeddings))

    def _check_scored(self, result: Scored) -> int:
        if not all(map(math.isfinite, result.scores)):
            raise ProtocolViolationError("a score that is no number")
        return self._end(result.ticket, JOB_ITEM_BYTES * len(result.scores))

    def _check_transcript(self, message: Transcribed | TranscriptEnded) -> int:
        """Check a transcript; provisional text alone counts as a stray."""
        job = self._open_job(message.ticket)
        if job is None:
            return 1
        if job.transcript is None:
            raise ProtocolViolationError("a transcript for a job without audio")
        if fault := job.transcript.find_fault(message):
            raise ProtocolViolationError(fault)
        match message:
            case TranscriptEnded():
                check_counts(message.computing_ms)
                check_usage(message.usage)
                return self._end(message.ticket, len(message.language))
            case Transcribed():
                check_counts(message.n_tokens)
                self._charge_for_segments(message)
                return not message.segments

    def _check_paused(self, ticket: int) -> int:
        job = self._open_job(ticket)
        if job is None:
            return 1
        if not job.pause_requested:
            raise ProtocolViolationError("a job was paused that was not asked to pause")
        job.pause_requested = False
        return 0

    def _check_audio_needed(self, ticket: int) -> int:
        """Check that a job has audio; the message counts as a stray."""
        job = self._open_job(ticket)
        if job is not None and job.transcript is None:
            raise ProtocolViolationError(
                "a job without audio that waits for more of it"
            )
        return 1

    def _charge_for_segments(self, message: Transcribed) -> None:
        for segment in message.segments:
            self._charge(message.ticket, len(segment.text))
        if message.segments and message.partial is not None:  # both are queued
            self._charge(message.ticket, len(message.partial.text))

    def _check_prepare_reply(
        self, message: PromptReady | Refused | PromptOverflow
    ) -> None:
        if message.ticket not in self._preparing:
            raise ProtocolViolationError("a reply to a prepare that was not sent")
        is_bounded = self._preparing.pop(message.ticket) and self._n_ctx
        if isinstance(message, PromptReady) and is_bounded:
            check_counts(message.prompt_tokens, self._n_ctx)

    def _check_failed(self, ticket: int) -> int:
        if ticket not in self._preparing:
            return self._end(ticket, 0)
        del self._preparing[ticket]
        return 0

    def _charge(self, ticket: int, n_bytes: int) -> int:
        """Charge an item to a job; return 1 if the job is not open any more."""
        job = self._jobs.get(ticket)
        if job is None or job.is_over:  # mostly it is neither
            job = self._open_job(ticket)
        if job is None:
            return 1
        job.bytes_left -= JOB_ITEM_BYTES + n_bytes
        if job.bytes_left < 0:
            raise ProtocolViolationError(f"the answer to job {ticket} is too long")
        return 0

    def _open_job(self, ticket: int) -> _OpenJob | None:
        """Find the open job of a message; ``None`` if it was closed."""
        job = self._jobs.get(ticket)
        if job is None and ticket > self._last_ticket:
            raise ProtocolViolationError(f"unknown job {ticket}")
        if job is not None and job.is_over:
            raise ProtocolViolationError(f"job {ticket} had ended")
        return job

    def _end(self, ticket: int, n_bytes: int) -> int:
        n_stray = self._charge(ticket, n_bytes)
        if not n_stray:
            self._jobs[ticket].is_over = True
        return n_stray

    def _check_end(self, end: Ended) -> None:
        usage = end.usage
        check_usage(usage)
        if 0 < self._n_ctx < usage.prompt_tokens + usage.completion_tokens - 1:
            raise ProtocolViolationError(
                f"more tokens than the {self._n_ctx} of its context"
            )

    def _charge_stray(self, n_stray: int, now: float) -> None:
        """Tolerate a bounded rate of messages for closed jobs: some cross a ``Drop``."""
        regained = (now - self._stray_at) * IPC_STRAY_PER_S
        self._stray_at = now
        left = min(IPC_STRAY_BURST, self._strays_left + regained) - n_stray
        self._strays_left = left
        if left < 0:
            raise ProtocolViolationError("too many messages for closed jobs")
