"""The process that grammars are tried in: ``python -m inferd.worker.llama.helper PARENT_PID``.

A worker in its box can start no process, so this one is started before, and waits. What it
runs takes a while to import, and most workers never need it: that waits, too.
"""

import subprocess
import sys
from contextlib import suppress
from io import BufferedReader
from os import getpid
from typing import TypeAlias

from inferd.worker.parent import die_with

Helper: TypeAlias = subprocess.Popen[str]
"""Its input and output are pipes: ``inferd.worker.llama.compiler`` says for what."""


def start() -> Helper:
    """Start one; it ends when its input does, or this thread.

    Raises:
        OSError: no process is to be had; in a box, never.
    """
    return subprocess.Popen(  # noqa: S603  # our own module
        [sys.executable, "-P", "-m", "inferd.worker.llama.helper", str(getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # it could quote grammars
        text=True,
    )


def end(helper: Helper) -> None:
    """End its input, and so itself, and reap it; one in a sandbox cannot be killed."""
    with suppress(BrokenPipeError), helper:  # closes the pipes
        pass


def main() -> None:
    """Wait for something to do, or for the end of the input."""
    die_with(int(sys.argv[1]))
    assert isinstance(sys.stdin.buffer, BufferedReader)  # noqa: S101  # not replaced
    if sys.stdin.buffer.peek(1):
        from inferd.worker.llama import compiler  # noqa: PLC0415

        compiler.main()


if __name__ == "__main__":
    main()
