"""Programs that run confined to a directory, in bounded time."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Timer
from typing import Final

from inferd.limits.models import PACKAGE_MAX_BYTES, PACKAGE_MEMORY_BYTES
from inferd.models.pull.errors import PullError
from inferd.terminal import print_stderr

_CONFINE: Final = ("-P", "-m", "inferd.downloader.confine")
_KEPT_LINES: Final = 20
_KEPT_CHARS: Final = 500


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
    with (
        _started(confined, environ) as process,
        _time_limit(process, confinement.limit_s) as expired,
    ):
        lines = _last_lines(process)
        code = process.wait()
    if expired.is_set():
        raise PullError(
            f"{Path(command[0]).name} took over {confinement.limit_s:g} s and was ended"
        )
    if code:
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
) -> Iterator["subprocess.Popen[str]"]:
    """Run a program in a process group of its own; end all of it if the body fails."""
    with subprocess.Popen(  # noqa: S603  # our own arguments
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environ,
        errors="replace",
        text=True,
        process_group=0,  # a terminal's keys are for the command
    ) as process:
        try:
            yield process
        except BaseException:
            _kill(process)
            raise


@contextmanager
def _time_limit(process: "subprocess.Popen[str]", limit_s: float) -> Iterator[Event]:
    """End a process that takes too long; yield whether it was ended."""
    expired = Event()

    def end() -> None:
        expired.set()
        _kill(process)

    timer = Timer(limit_s, end)
    timer.daemon = True
    timer.start()
    try:
        yield expired
    finally:
        timer.cancel()
        timer.join()


def _kill(process: "subprocess.Popen[str]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _last_lines(process: "subprocess.Popen[str]") -> list[str]:
    """Read the output, and keep its last lines; print notes at once."""
    lines: list[str] = []
    for line in process.stdout or ():
        text = line.strip()[:_KEPT_CHARS]
        if text.startswith("note: the sandbox is weaker"):
            print_stderr(text)
        elif text:
            lines = [*lines[1 - _KEPT_LINES :], text]
    return lines
