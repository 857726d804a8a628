"""The worker's entry point: ``python -m inferd.worker FD PARENT_PID``."""

import socket
import sys
from collections.abc import Callable
from functools import partial

from inferd.config.settings import LlamaCppSettings, MockSettings, WhisperCppSettings
from inferd.ipc.worker import Load, SandboxReport
from inferd.sandbox.pdeathsig import die_with_parent
from inferd.worker.backend import WorkerBackend
from inferd.worker.channel import WorkerChannel
from inferd.worker.runtime import Runtime
from inferd.worker.sandbox import WorkerSandbox, drop_privileges


def make_backend(
    sandbox: WorkerSandbox, report: Callable[[SandboxReport], None], load: Load
) -> WorkerBackend:
    """Enter the sandbox, then import the backend's library.

    Args:
        sandbox: to enter before the import.
        report: called with the state of the sandbox.
        load: what to load.

    Raises:
        LoadError: the model's files cannot be opened, or are not what they should be.
    """
    match load.settings:
        case MockSettings() as settings:
            from inferd.worker.mock.backend import MockBackend  # noqa: PLC0415

            report(sandbox.enter_loading(settings))
            return MockBackend(settings)
        case LlamaCppSettings() as settings:
            from inferd.worker.llama.gguf.files import open_files  # noqa: PLC0415

            files = open_files(settings)
            report(sandbox.enter_loading(settings, files.fds))
            from inferd.worker.llama.backend import LlamaBackend  # noqa: PLC0415

            return LlamaBackend(
                settings,
                n_slots=load.n_slots,
                crashed=load.crashed_variants,
                files=files,
            )
        case WhisperCppSettings() as settings:
            from inferd.worker.whisper.model.file import open_file  # noqa: PLC0415

            file = open_file(settings)
            report(sandbox.enter_loading(settings, file.fds))
            from inferd.worker.whisper.backend import WhisperBackend  # noqa: PLC0415

            return WhisperBackend(settings, n_slots=load.n_slots, file=file)


def main() -> int:
    """Serve the daemon at the other end of the given descriptor."""
    fd, parent_pid = map(int, sys.argv[1:3])
    die_with_parent(parent_pid)
    drop_privileges()
    sandbox = WorkerSandbox()
    sys.setswitchinterval(
        0.0005
    )  # the decoding thread waits for the interpreter, not I/O
    with socket.socket(fileno=fd) as sock:
        channel = WorkerChannel(sock)
        backend = partial(make_backend, sandbox, channel.send)
        return Runtime(channel, backend, sandbox.enter_serving).serve()


if __name__ == "__main__":
    sys.exit(main())
