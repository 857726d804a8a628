"""A scripted backend: it says its lines, stalls or dies on cue.

It ships with the daemon so that clients can be tested without a model. Everything but
the library is real: the process, the pipe, the slots, the threads.
"""

import os
import signal
import time

from inferd.backend import BackendCapabilities
from inferd.config import MockSettings
from inferd.ipc import Ended, Loading, Step
from inferd.job import GenerateJob
from inferd.wire.responses import StopReason, Usage
from inferd.worker.backend import PreparedJob, Report, WorkerBackend


class _Line(PreparedJob):
    """One recital of the script."""

    def __init__(self, job: GenerateJob, tokens: tuple[str, ...]) -> None:
        self._pieces = [token.encode() for token in tokens[: job.max_tokens]]
        self.stop_reason: StopReason = (
            "length" if job.max_tokens < len(tokens) else "end"
        )
        self.n_said = 0

    @property
    def prompt_tokens(self) -> int:
        return 0

    @property
    def is_over(self) -> bool:
        return self.n_said == len(self._pieces)

    def say(self) -> bytes:
        self.n_said += 1
        return self._pieces[self.n_said - 1]


class MockBackend(WorkerBackend):
    """Follows ``MockSettings``; prompts cost nothing and always fit."""

    def __init__(self, settings: MockSettings) -> None:
        self._settings = settings
        self._running: dict[int, _Line] = {}

    def load(self, report: Report) -> tuple[BackendCapabilities, str]:
        """Be ready at once, or die as told."""
        report(Loading(phase="checking_local", path="(mock)"))
        if self._settings.die_at_load:
            self._die()
        return BackendCapabilities(model="mock"), "mock"

    def prepare(self, job: GenerateJob) -> PreparedJob:
        """Take any job."""
        return _Line(job, self._settings.tokens)

    def start(self, ticket: int, prepared: PreparedJob) -> None:
        """Begin to recite."""
        assert isinstance(prepared, _Line)  # noqa: S101  # ours come from prepare alone
        self._running[ticket] = prepared

    def drop(self, ticket: int) -> None:
        """Fall silent."""
        self._running.pop(ticket, None)

    def step(self) -> Step:
        """Say one token of each recital."""
        if delay := self._settings.token_delay_ms:
            time.sleep(delay / 1000)
        pieces: list[tuple[int, bytes]] = []
        ended: list[Ended] = []
        for ticket, line in list(self._running.items()):
            if not line.is_over:
                self._die_on_cue(line.n_said)
                pieces.append((ticket, line.say()))
            if line.is_over:
                del self._running[ticket]
                usage = Usage(prompt_tokens=0, completion_tokens=line.n_said)
                ended.append(
                    Ended(ticket=ticket, stop_reason=line.stop_reason, usage=usage)
                )
        return Step(pieces=pieces, ended=ended)

    @property
    def is_busy(self) -> bool:
        """Whether anybody is reciting."""
        return bool(self._running)

    def _die_on_cue(self, n_said: int) -> None:
        if n_said == self._settings.die_after_tokens > 0:
            self._die()

    def _die(self) -> None:
        os.kill(os.getpid(), signal.Signals[self._settings.die_by])
