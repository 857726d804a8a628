"""The worker with the script: ``python -m inferd.worker.mock FD PARENT_PID``."""

import sys

from inferd.config.kinds.mock import MOCK, MockSettings
from inferd.ipc.worker import ReceivedLoad
from inferd.worker.backend import WorkerBackend
from inferd.worker.mock.backend import MockBackend
from inferd.worker.program import EnterSandbox, run_worker


def make_backend(
    settings: MockSettings, _load: ReceivedLoad, enter_sandbox: EnterSandbox
) -> WorkerBackend:
    """Enter the sandbox; there is nothing to import."""
    enter_sandbox(())
    return MockBackend(settings)


if __name__ == "__main__":
    sys.exit(run_worker(MOCK, make_backend))
