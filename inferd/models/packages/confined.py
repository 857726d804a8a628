"""Programs that run confined to a directory, in bounded time."""

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Final, cast

from inferd.limits.models import PACKAGE_MAX_BYTES, PACKAGE_MEMORY_BYTES
from inferd.models.pull.errors import PullError
from inferd.terminal import print_stderr

_CONFINE: Final = ("-P", "-m", "inferd.downloader.confine")
_KEPT_LINES: Final = 20
"""Of the output, for messages."""
_LINE_BYTES: Final = 500
"""Of each line; the rest of a longer one is not kept."""
_READ_BYTES: Final = 64 * 1024
"""What a pipe holds, so that one read after the end has all of the output."""


@dataclass(frozen=True, slots=True)
class Confinement:
    """What a program may do."""

    writes: Path
    """The only directory that it writes to; temporary files are in it, too."""
    limit_s: float
    reads: tuple[Path, ...] = ()
    """Besides the system's files."""
    network: bool = False
    memory_bytes: int = PACKAGE_MEMORY_BYTES
    file_bytes: int = PACKAGE_MAX_BYTES
    """Of each file that it writes."""


class ProgramError(Exception):
    """A program failed; ``output`` has its last lines."""

    def __init__(self, output: list[str]) -> None:
        super().__init__(output[-1] if output else "it said nothing")
        self.output = output


def run_confined(
    command: Sequence[str],
    confinement: Confinement,
    environ: Mapping[str, str],
    variables: Mapping[str, str],
) -> None:
    """Run a program to its end.

    Args:
        command: its path, and its arguments.
        confinement: what it may do.
        environ: its environment.
        variables: more of them, which it gets once it is confined.

    Raises:
        ProgramError: it failed.
        PullError: it took too long.
    """
    given = {"TMPDIR": str(confinement.writes), **variables}
    confined = [
        *(sys.executable, *_CONFINE, *_options(confinement)),
        *(f"--environ={name}={value}" for name, value in given.items()),
        *("--", *command),
    ]
    with _started(confined, environ) as process:
        lines = _follow(process, Path(command[0]).name, confinement.limit_s)
    if process.returncode:
        raise ProgramError(lines)


def _options(confinement: Confinement) -> Iterator[str]:
    yield f"--parent={os.getpid()}"
    yield f"--writes={confinement.writes}"
    yield f"--memory-bytes={confinement.memory_bytes}"
    yield f"--file-bytes={confinement.file_bytes}"
    yield from (f"--reads={path}" for path in confinement.reads)
    if confinement.network:
        yield "--network"


@contextmanager
def _started(
    command: list[str], environ: Mapping[str, str]
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a program in a process group of its own, which ends with the body."""
    with subprocess.Popen(  # noqa: S603  # our own arguments
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environ,
        bufsize=0,
        process_group=0,  # a terminal's keys are for the command
    ) as process:
        try:
            yield process
        finally:  # before it is reaped: until then its number is no other group's
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _follow(process: "subprocess.Popen[bytes]", name: str, limit_s: float) -> list[str]:
    """Read the output until the process itself ends; return its last lines.

    What it has started may hold the output open, and is not awaited.

    Raises:
        PullError: it takes too long.
    """
    deadline = time.monotonic() + limit_s
    lines = LastLines()
    with ExitStack() as opened:
        selector = opened.enter_context(selectors.DefaultSelector())
        ended = opened.enter_context(FileIO(os.pidfd_open(process.pid)))
        output = opened.enter_context(cast("FileIO", process.stdout))
        os.set_blocking(output.fileno(), False)
        selector.register(ended, selectors.EVENT_READ)
        selector.register(output, selectors.EVENT_READ)
        while True:
            ready = [
                key.fileobj
                for key, _ in selector.select(max(0.0, deadline - time.monotonic()))
            ]
            data = output.read(_READ_BYTES)
            lines.add(data or b"")
            if ended in ready:
                return lines.end()
            if time.monotonic() >= deadline:
                raise PullError(f"{name} took over {limit_s:g} s and was ended")
            if data == b"" and output in selector.get_map():  # nobody has it open
                selector.unregister(output)


class LastLines:
    """The last lines of an output, of which no more than that is kept; notes are printed."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._begun = b""

    def add(self, data: bytes) -> None:
        """Add bytes of the output."""
        *ended, begun = data.replace(b"\r", b"\n").split(b"\n")
        for rest in ended:
            self._add_line(self._begun + rest)
            self._begun = b""
        self._begun = (self._begun + begun)[:_LINE_BYTES]

    def end(self) -> list[str]:
        """Return the last lines, the one without an end among them."""
        self._add_line(self._begun)
        return self._lines

    def _add_line(self, line: bytes) -> None:
        text = line[:_LINE_BYTES].decode(errors="replace").strip()
        if text.startswith("note: the sandbox is weaker"):
            print_stderr(text)
        elif text:
            self._lines = [*self._lines[1 - _KEPT_LINES :], text]
