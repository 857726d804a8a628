"""The worker's entry: ``python -m inferd.worker FD PARENT_PID``."""

import socket
import sys
from collections.abc import Callable
from functools import partial

from inferd.config import LlamaCppSettings, MockSettings, WhisperCppSettings
from inferd.ipc import Boxed, Load
from inferd.sandbox.parent import die_with
from inferd.worker.backend import WorkerBackend
from inferd.worker.link import Link
from inferd.worker.runtime import Runtime
from inferd.worker.sandbox import Sandbox, give_up_privileges


def make_backend(
    sandbox: Sandbox, tell: Callable[[Boxed], None], load: Load
) -> WorkerBackend:
    """Choose the library; importing it is what only this process does, in its sandbox.

    Args:
        sandbox: to enter before that.
        tell: told what holds it in.
        load: what is to be loaded.

    Raises:
        LoadError: its files cannot be opened, or are not what they should be.
    """
    match load.settings:
        case MockSettings() as settings:
            from inferd.worker.mock import MockBackend  # noqa: PLC0415

            tell(sandbox.enter(settings))
            return MockBackend(settings)
        case LlamaCppSettings() as settings:
            from inferd.worker.llama.files import open_files  # noqa: PLC0415

            files = open_files(settings)
            tell(sandbox.enter(settings, files.fds))
            from inferd.worker.llama.backend import LlamaBackend  # noqa: PLC0415

            return LlamaBackend(
                settings,
                n_slots=load.n_slots,
                crashed=load.crashed,
                files=files,
            )
        case WhisperCppSettings() as settings:
            from inferd.worker.whisper.files import open_file  # noqa: PLC0415

            file = open_file(settings)
            tell(sandbox.enter(settings, file.fds))
            from inferd.worker.whisper.backend import WhisperBackend  # noqa: PLC0415

            return WhisperBackend(settings, n_slots=load.n_slots, file=file)


def main() -> int:
    """Serve the daemon at the other end of the given descriptor."""
    fd, parent_pid = map(int, sys.argv[1:3])
    die_with(parent_pid)
    give_up_privileges()
    sandbox = Sandbox()
    sys.setswitchinterval(
        0.0005
    )  # the decoding thread waits for the interpreter, not I/O
    with socket.socket(fileno=fd) as sock:
        link = Link(sock)
        backend = partial(make_backend, sandbox, link.send)
        return Runtime(link, backend, sandbox.begin_serving).serve()


if __name__ == "__main__":
    sys.exit(main())
