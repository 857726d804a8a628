"""A program of the operator's that runs confined, in a directory of its own."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio

from inferd.config.tools import TOOL_FILE_BYTES, ConfinedSettings

_CONFINE: Final = ("-P", "-m", "inferd.downloader.confine")
_PASSED_ON: Final = ("LANG", "PATH", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
"""Variables of the environment that it gets; no token is among them."""


@dataclass(frozen=True)
class ConfinedProcess:
    """A program that runs."""

    asked: trio.abc.SendStream
    """Its standard input."""
    said: trio.abc.ReceiveStream
    """Its standard output."""


@asynccontextmanager
async def confined(
    command: Sequence[str], program: ConfinedSettings
) -> AsyncIterator[ConfinedProcess]:
    """Run a program inside, with a directory of its own that is removed.

    Args:
        command: the program, by its path, and its arguments.
        program: what it may do.

    Raises:
        OSError: it cannot be started.
    """
    scratch = Path(tempfile.mkdtemp(prefix="inferd-tools-"))
    try:
        process = await _started(command, program, scratch)
        try:
            assert process.stdin is not None  # noqa: S101  # a pipe
            assert process.stdout is not None  # noqa: S101  # a pipe
            yield ConfinedProcess(process.stdin, process.stdout)
        finally:
            with trio.CancelScope(shield=True):
                await _end(process)
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(_remove, scratch)


def _remove(scratch: Path) -> None:
    shutil.rmtree(scratch, ignore_errors=True)


async def _started(
    command: Sequence[str], program: ConfinedSettings, scratch: Path
) -> trio.Process:
    return await trio.lowlevel.open_process(
        [sys.executable, *_CONFINE, *_options(program, scratch), "--", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=scratch,
        env={k: os.environ[k] for k in _PASSED_ON if k in os.environ},
        process_group=0,  # a terminal's keys are for the bridge
    )


def _options(program: ConfinedSettings, scratch: Path) -> Iterator[str]:
    yield f"--parent={os.getpid()}"
    yield f"--writes={scratch}"
    yield f"--memory-bytes={program.memory_mb * 1024 * 1024}"
    yield f"--file-bytes={TOOL_FILE_BYTES}"
    yield "--event-loop"
    yield from (f"--reads={path}" for path in program.reads)
    given = (f"HOME={scratch}", f"TMPDIR={scratch}", *program.environ)
    yield from (f"--environ={each}" for each in given)
    if program.network:
        yield "--network"


async def _end(process: trio.Process) -> None:
    """Kill the process with all that it has started, and reap it."""
    if process.returncode is None:  # until it is reaped its number is no other group's
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            await stream.aclose()
