"""The worker's entry: ``python -m inferd.worker FD PARENT_PID``."""

import socket
import sys
from collections.abc import Callable
from functools import partial

from inferd.config import LlamaCppSettings, MockSettings, WhisperCppSettings
from inferd.ipc import Boxed, Load
from inferd.worker import box
from inferd.worker.backend import WorkerBackend
from inferd.worker.link import Link
from inferd.worker.parent import die_with
from inferd.worker.runtime import Runtime


def make_backend(tell: Callable[[Boxed], None], load: Load) -> WorkerBackend:
    """Choose the library; importing it is what only this process does, in its box.

    Args:
        tell: what the box holds back.
        load: what is to be loaded.

    Raises:
        LoadError: its files cannot be opened, or are not what they should be.
    """
    match load.settings:
        case MockSettings() as settings:
            from inferd.worker.mock import MockBackend  # noqa: PLC0415

            tell(box.enter(settings))
            return MockBackend(settings)
        case LlamaCppSettings() as settings:
            from inferd.worker.llama.files import open_files  # noqa: PLC0415

            files = open_files(settings)
            tell(box.enter(settings, files.fds))
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
            tell(box.enter(settings, file.fds))
            from inferd.worker.whisper.backend import WhisperBackend  # noqa: PLC0415

            return WhisperBackend(settings, n_slots=load.n_slots, file=file)


def main() -> int:
    """Serve the daemon at the other end of the given descriptor."""
    fd, parent_pid = map(int, sys.argv[1:3])
    die_with(parent_pid)
    box.give_up_privileges()
    sys.setswitchinterval(
        0.0005
    )  # the decoding thread waits for the interpreter, not I/O
    with socket.socket(fileno=fd) as sock:
        link = Link(sock)
        return Runtime(link, partial(make_backend, link.send)).serve()


if __name__ == "__main__":
    sys.exit(main())
