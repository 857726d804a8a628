"""The worker of the kind ``shout``: ``python -m tests.fakes.kinds.shout FD PARENT_PID``."""

import errno
import os
import socket
import sys
from collections.abc import Sequence

from inferd.backend.capabilities import BackendCapabilities
from inferd.backend.job import Job
from inferd.ipc.worker import Ended, Loaded, Loading, ReceivedLoad, Step
from inferd.memory.plan import MemoryDemand, MemoryShare
from inferd.wire.responses import Usage
from inferd.worker.backend import (
    LoadError,
    LoadReporter,
    PreparedJob,
    StepOutcome,
    WorkerBackend,
)
from inferd.worker.program import EnterSandbox, run_worker
from tests.fakes.kinds.records import SHOUT, ShoutSettings


class _Shout(PreparedJob):
    @property
    def prompt_tokens(self) -> int:
        return 1


class ShoutBackend(WorkerBackend):
    """Answers every job with the text, in one step."""

    def __init__(self, settings: ShoutSettings, text: bytes) -> None:
        self._settings = settings
        self._text = text.upper()
        self._running: list[int] = []

    def predict(self, report: LoadReporter) -> MemoryDemand:
        """Demand what is configured."""
        own = self._settings.memory_bytes
        return MemoryDemand(
            n_ctx=512, is_set=False, has_slots=False, weights=0, own=own
        )

    def load(self, report: LoadReporter, share: MemoryShare | None = None) -> Loaded:
        """Load nothing, but from inside the sandbox, with the memory that was granted."""
        report(Loading(phase="checking_local"))
        if share is None:
            raise LoadError("no memory was granted")
        try:
            socket.socket(socket.AF_INET).close()
        except OSError as error:
            is_closed = error.errno == errno.EPERM
        else:
            is_closed = False
        model = f"shout, {'without' if is_closed else 'with'} a network"
        return Loaded(capabilities=BackendCapabilities(model=model), library="shout")

    def prepare(self, job: Job, fds: Sequence[int] = ()) -> PreparedJob:
        """Accept any job."""
        return _Shout()

    def start(self, ticket: int, prepared: PreparedJob) -> None:
        """Answer in the next step."""
        self._running.append(ticket)

    def pause(self, ticket: int) -> None:
        """Be done before that."""

    def resume(self, ticket: int) -> None:
        """Was never paused."""

    def drop(self, ticket: int) -> None:
        """Forget a job."""
        if ticket in self._running:
            self._running.remove(ticket)

    @property
    def is_busy(self) -> bool:
        """Whether any job is unanswered."""
        return bool(self._running)

    def step(self) -> list[StepOutcome]:
        """Answer every job."""
        running, self._running = self._running, []
        usage = Usage(prompt_tokens=1, completion_tokens=1)
        return [
            Step(
                pieces=[(ticket, self._text) for ticket in running],
                ended=[
                    Ended(ticket=ticket, stop_reason="end", usage=usage)
                    for ticket in running
                ],
            )
        ]


def make_backend(
    settings: ShoutSettings, _load: ReceivedLoad, enter_sandbox: EnterSandbox
) -> ShoutBackend:
    """Open the file, then enter the sandbox, then read it."""
    try:
        fd = os.open(settings.file, os.O_RDONLY)
    except OSError as error:
        raise LoadError("file", f"file {settings.file}: {error.strerror}") from error
    enter_sandbox([fd])
    return ShoutBackend(settings, os.pread(fd, 1000, 0))


if __name__ == "__main__":
    sys.exit(run_worker(SHOUT, make_backend))
