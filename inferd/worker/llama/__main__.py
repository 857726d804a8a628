"""The worker with llama.cpp: ``python -m inferd.worker.llama FD PARENT_PID``."""

import sys

from inferd.config.kinds.llamacpp import LLAMACPP, LlamaCppSettings
from inferd.ipc.worker import ReceivedLoad
from inferd.worker.backend import WorkerBackend
from inferd.worker.llama.gguf.files import open_files
from inferd.worker.program import EnterSandbox, run_worker


def make_backend(
    settings: LlamaCppSettings, load: ReceivedLoad, enter_sandbox: EnterSandbox
) -> WorkerBackend:
    """Open the model, enter the sandbox, then import the library."""
    files = open_files(settings)
    enter_sandbox(files.fds)
    from inferd.worker.llama.backend import LlamaBackend  # noqa: PLC0415  # native

    return LlamaBackend(
        settings, n_slots=load.n_slots, crashed=load.crashed_variants, files=files
    )


if __name__ == "__main__":
    sys.exit(run_worker(LLAMACPP, make_backend))
