"""The worker with whisper.cpp: ``python -m inferd.worker.whisper FD PARENT_PID``."""

import sys

from inferd.config.kinds.whispercpp import WHISPERCPP, WhisperCppSettings
from inferd.ipc.worker import ReceivedLoad
from inferd.worker.backend import WorkerBackend
from inferd.worker.program import EnterSandbox, run_worker
from inferd.worker.whisper.model.file import open_file


def make_backend(
    settings: WhisperCppSettings, load: ReceivedLoad, enter_sandbox: EnterSandbox
) -> WorkerBackend:
    """Open the model, enter the sandbox, then import the library."""
    file = open_file(settings)
    enter_sandbox(file.fds)
    from inferd.worker.whisper.backend import WhisperBackend  # noqa: PLC0415  # native

    return WhisperBackend(settings, n_slots=load.n_slots, file=file)


if __name__ == "__main__":
    sys.exit(run_worker(WHISPERCPP, make_backend))
