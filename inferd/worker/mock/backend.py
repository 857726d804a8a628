"""The mock backend: it generates its script, and stalls or dies as configured.

It ships with the daemon so that clients can be tested without a model. Everything but the
library is real: the process, the socket, the slots, the threads. It supports the whole
protocol: ``<think>…</think>`` in the script is reasoning, ``<tool_call>{"name": …,
"arguments": {…}}</tool_call>`` a tool call. Vectors and scores are computed from the texts,
and are the same in every run. A token's id is its index in the script. Images are ignored; a transcript is the script
(``mock.speech``).
"""

import hashlib
import math
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from inferd.backend.capabilities import BackendCapabilities
from inferd.backend.job import EmbedJob, GenerateJob, Job, RerankJob, TranscribeJob
from inferd.config.kinds.mock import MockSettings
from inferd.ipc.worker import (
    Embedded,
    Ended,
    Loaded,
    Loading,
    Paused,
    Scored,
    Step,
    Transcribed,
)
from inferd.memory.plan import MemoryDemand, MemoryShare
from inferd.wire.responses import Alternative, Logprob, StopReason, Usage
from inferd.worker.backend import (
    LoadReporter,
    PreparedJob,
    RefusedError,
    StepOutcome,
    WorkerBackend,
)
from inferd.worker.channel import close_fds
from inferd.worker.mock.speech import MockTranscription

SAMPLE_RATE = 16_000
"""Sample rate of its audio, in Hz."""
N_EMBD = 8
"""Length of its vectors: at most the 32 bytes of a SHA-256."""


@dataclass
class _ScriptedAnswer(PreparedJob):
    """A generate job with its script, or an embed or rerank job."""

    job: Job
    tokens: tuple[str, ...] = ()
    n_written: int = field(default=0, init=False)

    @property
    def prompt_tokens(self) -> int:
        return len(self.job.input_tokens) if isinstance(self.job, GenerateJob) else 0


class MockBackend(WorkerBackend):
    """Backend that follows ``MockSettings``; prompts cost nothing and always fit."""

    def __init__(self, settings: MockSettings) -> None:
        self._settings = settings
        self._running: dict[int, _ScriptedAnswer] = {}
        self._transcribing: dict[int, MockTranscription] = {}
        self._paused: dict[int, _ScriptedAnswer | MockTranscription] = {}
        self._pending: list[StepOutcome] = []

    def predict(self, report: LoadReporter) -> MemoryDemand | None:  # noqa: ARG002
        """Demand the memory that is configured."""
        if not self._settings.memory_mb:
            return None
        return MemoryDemand(
            n_ctx=1,
            is_set=True,
            has_slots=False,
            weights=self._settings.memory_mb * 2**20,
            own=0,
        )

    def load(self, report: LoadReporter, share: MemoryShare | None = None) -> Loaded:
        """Get ready after the configured time, or die as configured."""
        report(Loading(phase="checking_local", path="(mock)"))
        if self._settings.die_at_load:
            self._die()
        if delay := self._settings.load_delay_ms:
            report(Loading(phase="mmap", path="(mock)"))
            time.sleep(delay / 1000)
        return self.outline(report, share)

    def outline(
        self,
        report: LoadReporter,  # noqa: ARG002  # there are no files
        share: MemoryShare | None = None,  # noqa: ARG002
    ) -> Loaded:
        """Return the capabilities at once."""
        settings = self._settings
        takes_audio = settings.audio or settings.transcribe
        capabilities = BackendCapabilities(
            model="mock",
            v2=True,
            vision=settings.vision,
            audio=settings.audio,
            transcribe=settings.transcribe,
            audio_sample_rate=SAMPLE_RATE if takes_audio else 0,
            tools=True,
            thinking=True,
            embed=True,
            rerank=True,
            n_embd=N_EMBD,
            dialect="generic",
        )
        return Loaded(capabilities=capabilities, library="mock")

    def prepare(self, job: Job, fds: Sequence[int] = ()) -> PreparedJob:
        """Accept any job with valid dimensions; media are ignored."""
        if delay := self._settings.prepare_delay_ms:
            time.sleep(delay / 1000)
        match job:
            case GenerateJob():
                close_fds(fds)
                tokens = () if job.prefill_only else self._settings.tokens
                return _ScriptedAnswer(job, tokens)
            case EmbedJob(dimensions=dimensions):
                if dimensions is not None and dimensions > N_EMBD:
                    raise RefusedError(f"dimensions {dimensions} not in [1, {N_EMBD}]")
                return _ScriptedAnswer(job)
            case RerankJob():
                return _ScriptedAnswer(job)
            case TranscribeJob():
                [fd] = fds
                return MockTranscription(job, fd, self._settings.tokens)

    def start(self, ticket: int, prepared: PreparedJob) -> None:
        """Start a job."""
        if isinstance(prepared, MockTranscription):
            self._transcribing[ticket] = prepared
            self._pending += prepared.audio_needed(ticket)
            return
        assert isinstance(prepared, _ScriptedAnswer)  # noqa: S101  # ours come from prepare alone
        self._running[ticket] = prepared

    def append_audio(self, ticket: int, n_bytes: int, *, is_last: bool) -> None:
        """Add audio to a transcription."""
        transcription = self._transcribing.get(ticket) or self._paused.get(ticket)
        if isinstance(transcription, MockTranscription):
            transcription.append(n_bytes, is_last=is_last)

    def pause(self, ticket: int) -> None:
        """Pause in the middle of the script."""
        found = self._running.pop(ticket, None) or self._transcribing.pop(ticket, None)
        if found is not None:
            self._paused[ticket] = found
            self._pending.append(Paused(ticket=ticket))

    def resume(self, ticket: int) -> None:
        """Continue the script."""
        if (found := self._paused.pop(ticket, None)) is not None:
            self.start(ticket, found)

    def drop(self, ticket: int) -> None:
        """Drop a job."""
        self._running.pop(ticket, None)
        found = self._transcribing.pop(ticket, None) or self._paused.pop(ticket, None)
        if isinstance(found, MockTranscription):
            found.close()

    def step(self) -> list[StepOutcome]:
        """Generate one token of each answer, or all vectors and scores."""
        pending, self._pending = self._pending, []
        if pending:
            return pending
        if delay := self._settings.token_delay_ms:
            time.sleep(delay / 1000)
        step = Step(pieces=[], logprobs=[], token_ids=[], prefilled=[], ended=[])
        outcomes: list[StepOutcome] = [step]
        for ticket, answer in list(self._running.items()):
            match answer.job:
                case GenerateJob() as job:
                    self._write_token(ticket, answer, job, step)
                case EmbedJob() as job:
                    outcomes.append(_embedded(ticket, job))
                    self.drop(ticket)
                case RerankJob() as job:
                    outcomes.append(_scored(ticket, job))
                    self.drop(ticket)
                case TranscribeJob():
                    raise AssertionError("a transcription is no scripted answer")
        outcomes += self._transcribe()
        return outcomes

    def _transcribe(self) -> list[StepOutcome]:
        outcomes: list[StepOutcome] = []
        for ticket, transcription in list(self._transcribing.items()):
            if not transcription.is_busy:
                continue
            self._die_if_scripted(transcription.n_written)
            outcome = transcription.step(ticket)
            outcomes.append(outcome)
            if isinstance(outcome, Transcribed):
                outcomes += transcription.audio_needed(ticket)
            else:
                self.drop(ticket)
        return outcomes

    @property
    def is_busy(self) -> bool:
        """Whether any job has work to do."""
        return bool(self._running or self._pending) or any(
            transcription.is_busy for transcription in self._transcribing.values()
        )

    def _write_token(
        self, ticket: int, answer: _ScriptedAnswer, job: GenerateJob, step: Step
    ) -> None:
        if answer.n_written == 0 and job.wants_progress:
            step.prefilled.append((ticket, 0))
        self._die_if_scripted(answer.n_written)
        n_tokens = min(len(answer.tokens), job.max_tokens)
        if answer.n_written < n_tokens:
            token = answer.n_written
            if token in job.stop_token_ids:
                self._end(ticket, answer, step, stop_token=token)
                return
            if job.n_alternatives:
                step.logprobs.append((ticket, _logprob(token, answer.tokens[token])))
            if job.wants_token_ids:
                step.token_ids.append((ticket, token))
            step.pieces.append((ticket, answer.tokens[token].encode()))
            answer.n_written += 1
        if answer.n_written == n_tokens and not self._is_death_scripted(
            answer.n_written
        ):
            stop_reason: StopReason = (
                "end" if n_tokens == len(answer.tokens) else "length"
            )
            self._end(ticket, answer, step, stop_reason=stop_reason)

    def _end(
        self,
        ticket: int,
        answer: _ScriptedAnswer,
        step: Step,
        *,
        stop_reason: StopReason = "end",
        stop_token: int | None = None,
    ) -> None:
        self.drop(ticket)
        usage = Usage(answer.prompt_tokens, completion_tokens=answer.n_written)
        step.ended.append(
            Ended(
                ticket=ticket,
                stop_reason=stop_reason,
                usage=usage,
                stop_token_id=stop_token,
                end_token_id=stop_token,
            )
        )

    def _die_if_scripted(self, n_written: int) -> None:
        if self._is_death_scripted(n_written):
            self._die()

    def _is_death_scripted(self, n_written: int) -> bool:
        return n_written == self._settings.die_after_tokens > 0

    def _die(self) -> None:
        os.kill(os.getpid(), signal.Signals[self._settings.die_by])


def _logprob(token: int, text: str) -> Logprob:
    """Make a token's log probability: certain, with no other alternative."""
    chosen = Alternative(token=text, id=token, bytes=list(text.encode()), logprob=0.0)
    return Logprob(**msgspec.structs.asdict(chosen), top_logprobs=[chosen])


def _embedded(ticket: int, job: EmbedJob) -> Embedded:
    n_numbers = job.dimensions or N_EMBD
    entries = [text.encode() for text in job.texts] or [
        b"".join(token.to_bytes(4, "little") for token in tokens)
        for tokens in job.tokens
    ]
    vectors = [_vector(entry, n_numbers) for entry in entries]
    return Embedded(
        ticket=ticket, embeddings=msgspec.json.encode(vectors), dimensions=n_numbers
    )


def _vector(entry: bytes, n_numbers: int) -> list[float]:
    digest = hashlib.sha256(entry).digest()
    numbers = [byte - 127.5 for byte in digest[:n_numbers]]
    length = math.hypot(*numbers)
    return [number / length for number in numbers]


def _scored(ticket: int, job: RerankJob) -> Scored:
    """Score by the fraction of the query's words that a document contains."""
    words = set(job.query.lower().split())
    found = [words & set(text.lower().split()) for text in job.documents]
    return Scored(
        ticket=ticket, scores=[len(matches) / (len(words) or 1) for matches in found]
    )
