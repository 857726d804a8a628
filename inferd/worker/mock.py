"""A scripted backend: it says its lines, stalls or dies on cue.

It ships with the daemon so that clients can be tested without a model. Everything but
the library is real: the process, the pipe, the slots, the threads. It does all that the
wire has: ``<think>…</think>`` in the script is a thought,
``<tool_call>{"name": …, "arguments": {…}}</tool_call>`` a call. Vectors and scores follow
from the texts, and are the same at every run. At images it does not look; what it hears is
its script (``mock_speech``).
"""

import hashlib
import math
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from inferd.capabilities import BackendCapabilities
from inferd.config import MockSettings
from inferd.fit import Share
from inferd.ipc import (
    Embedded,
    Ended,
    Loaded,
    Loading,
    Paused,
    Scored,
    Step,
    Transcribed,
)
from inferd.job import EmbedJob, GenerateJob, Job, RerankJob, TranscribeJob
from inferd.wire.responses import Alternative, Logprob, StopReason, Usage
from inferd.worker.backend import (
    Outcome,
    PreparedJob,
    RefusedError,
    Report,
    WorkerBackend,
)
from inferd.worker.link import close_all
from inferd.worker.mock_speech import Dictation

SAMPLE_RATE = 16_000
"""Samples a second of what it hears."""
N_EMBD = 8
"""Numbers of one of its vectors: those that a SHA-256 has room for."""


@dataclass
class _Recital(PreparedJob):
    """A run of the script, or the texts that take its place."""

    job: Job
    tokens: tuple[str, ...] = ()
    n_said: int = field(default=0, init=False)

    @property
    def prompt_tokens(self) -> int:
        return 0


class MockBackend(WorkerBackend):
    """Follows ``MockSettings``; prompts cost nothing and always fit."""

    def __init__(self, settings: MockSettings) -> None:
        self._settings = settings
        self._running: dict[int, _Recital] = {}
        self._hearing: dict[int, Dictation] = {}
        self._paused: dict[int, _Recital | Dictation] = {}
        self._told: list[Outcome] = []

    def load(self, report: Report, share: Share | None = None) -> Loaded:  # noqa: ARG002
        """Be ready at once, or die as told."""
        report(Loading(phase="checking_local", path="(mock)"))
        if self._settings.die_at_load:
            self._die()
        settings = self._settings
        hears = settings.audio or settings.transcribe
        able = BackendCapabilities(
            model="mock",
            v2=True,
            vision=settings.vision,
            audio=settings.audio,
            transcribe=settings.transcribe,
            audio_sample_rate=SAMPLE_RATE if hears else 0,
            tools=True,
            thinking=True,
            embed=True,
            rerank=True,
            n_embd=N_EMBD,
            dialect="generic",
        )
        return Loaded(capabilities=able, library="mock")

    def prepare(self, job: Job, fds: Sequence[int] = ()) -> PreparedJob:
        """Take any job whose vectors it can make; it looks at no media."""
        if delay := self._settings.prepare_delay_ms:
            time.sleep(delay / 1000)
        match job:
            case GenerateJob():
                close_all(fds)
                tokens = () if job.prefill_only else self._settings.tokens
                return _Recital(job, tokens)
            case EmbedJob(dimensions=dimensions):
                if dimensions is not None and dimensions > N_EMBD:
                    raise RefusedError(f"dimensions {dimensions} not in [1, {N_EMBD}]")
                return _Recital(job)
            case RerankJob():
                return _Recital(job)
            case TranscribeJob():
                [fd] = fds
                return Dictation(job, fd, self._settings.tokens)

    def start(self, ticket: int, prepared: PreparedJob) -> None:
        """Begin to recite."""
        if isinstance(prepared, Dictation):
            self._hearing[ticket] = prepared
            self._told += prepared.silence(ticket)
            return
        assert isinstance(prepared, _Recital)  # noqa: S101  # ours come from prepare alone
        self._running[ticket] = prepared

    def append(self, ticket: int, n_bytes: int, *, is_last: bool) -> None:
        """Have more to hear."""
        dictation = self._hearing.get(ticket) or self._paused.get(ticket)
        if isinstance(dictation, Dictation):
            dictation.append(n_bytes, is_last=is_last)

    def pause(self, ticket: int) -> None:
        """Stop in the middle of the script."""
        found = self._running.pop(ticket, None) or self._hearing.pop(ticket, None)
        if found is not None:
            self._paused[ticket] = found
            self._told.append(Paused(ticket=ticket))

    def resume(self, ticket: int) -> None:
        """Go on there."""
        if (found := self._paused.pop(ticket, None)) is not None:
            self.start(ticket, found)

    def drop(self, ticket: int) -> None:
        """Fall silent."""
        self._running.pop(ticket, None)
        found = self._hearing.pop(ticket, None) or self._paused.pop(ticket, None)
        if isinstance(found, Dictation):
            found.close()

    def step(self) -> list[Outcome]:
        """Say one token of each recital, or all that there is of vectors and scores."""
        told, self._told = self._told, []
        if told:
            return told
        if delay := self._settings.token_delay_ms:
            time.sleep(delay / 1000)
        step = Step(pieces=[], logprobs=[], prefilled=[], ended=[])
        outcomes: list[Outcome] = [step]
        for ticket, recital in list(self._running.items()):
            match recital.job:
                case GenerateJob() as job:
                    self._recite(ticket, recital, job, step)
                case EmbedJob() as job:
                    outcomes.append(_embedded(ticket, job))
                    self.drop(ticket)
                case RerankJob() as job:
                    outcomes.append(_scored(ticket, job))
                    self.drop(ticket)
                case TranscribeJob():
                    raise AssertionError("it is no recital")
        outcomes += self._hear()
        return outcomes

    def _hear(self) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for ticket, dictation in list(self._hearing.items()):
            if not dictation.is_busy:
                continue
            self._die_on_cue(dictation.n_said)
            heard = dictation.step(ticket)
            outcomes.append(heard)
            if isinstance(heard, Transcribed):
                outcomes += dictation.silence(ticket)
            else:
                self.drop(ticket)
        return outcomes

    @property
    def is_busy(self) -> bool:
        """Whether anybody is reciting, or has something to hear."""
        return bool(self._running or self._told) or any(
            each.is_busy for each in self._hearing.values()
        )

    def _recite(
        self, ticket: int, recital: _Recital, job: GenerateJob, step: Step
    ) -> None:
        if recital.n_said == 0 and job.wants_progress:
            step.prefilled.append((ticket, 0))
        self._die_on_cue(recital.n_said)
        n_tokens = min(len(recital.tokens), job.max_tokens)
        if recital.n_said < n_tokens:
            token = recital.n_said
            if token in job.stop_token_ids:
                self._end(ticket, recital, step, stop_token=token)
                return
            if job.n_alternatives:
                step.logprobs.append((ticket, _logprob(token, recital.tokens[token])))
            step.pieces.append((ticket, recital.tokens[token].encode()))
            recital.n_said += 1
        if recital.n_said == n_tokens and not self._is_on_cue(recital.n_said):
            why: StopReason = "end" if n_tokens == len(recital.tokens) else "length"
            self._end(ticket, recital, step, why=why)

    def _end(
        self,
        ticket: int,
        recital: _Recital,
        step: Step,
        *,
        why: StopReason = "end",
        stop_token: int | None = None,
    ) -> None:
        self.drop(ticket)
        usage = Usage(prompt_tokens=0, completion_tokens=recital.n_said)
        step.ended.append(
            Ended(ticket=ticket, stop_reason=why, usage=usage, stop_token_id=stop_token)
        )

    def _die_on_cue(self, n_said: int) -> None:
        if self._is_on_cue(n_said):
            self._die()

    def _is_on_cue(self, n_said: int) -> bool:
        return n_said == self._settings.die_after_tokens > 0

    def _die(self) -> None:
        os.kill(os.getpid(), signal.Signals[self._settings.die_by])


def _logprob(token: int, text: str) -> Logprob:
    """Tell that there was no doubt, and nothing else to say."""
    chosen = Alternative(token=text, id=token, bytes=list(text.encode()), logprob=0.0)
    return Logprob(**msgspec.structs.asdict(chosen), top_logprobs=[chosen])


def _embedded(ticket: int, job: EmbedJob) -> Embedded:
    n_numbers = job.dimensions or N_EMBD
    vectors = [_vector(text, n_numbers) for text in job.texts]
    return Embedded(
        ticket=ticket, embeddings=msgspec.json.encode(vectors), dimensions=n_numbers
    )


def _vector(text: str, n_numbers: int) -> list[float]:
    digest = hashlib.sha256(text.encode()).digest()
    numbers = [byte - 127.5 for byte in digest[:n_numbers]]
    length = math.hypot(*numbers)
    return [number / length for number in numbers]


def _scored(ticket: int, job: RerankJob) -> Scored:
    """Score by the share of the query's words that a document has."""
    words = set(job.query.lower().split())
    found = [words & set(text.lower().split()) for text in job.documents]
    return Scored(
        ticket=ticket, scores=[len(each) / (len(words) or 1) for each in found]
    )
