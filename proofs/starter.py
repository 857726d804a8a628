"""Starts pulls, one after another, and tells how each has ended with all its processes.

``python -m proofs.starter SOURCE NAME FILE`` reads a line for each pull: ``program`` starts
``python -m inferd`` as people do, ``fork`` forks a process that has the modules already. A
pull then costs a tenth: most of its time would go into imports, before the first byte comes.
It writes two lines for each: the pid of the command, and its exit code once neither it nor
any process of its own is left. What the last command has written to stderr is in the file.
"""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

import inferd.cli.models.pull
import inferd.downloader.__main__
import inferd.downloader.tasks  # for the downloaders
from inferd.cli import main as run_command

_SUBREAPER: Final = 36
"""Option of ``prctl``: orphans below this process become its children."""
_FIRST_FD: Final = 3


def main() -> None:
    """Start what is asked for until stdin ends."""
    source, name, errors = sys.argv[1:4]
    arguments = ["model", "pull", source, "--name", name]
    starts: dict[str, Callable[[Sequence[str]], None]] = {
        "program": _become_program,
        "fork": _run_here,
    }
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    for line in sys.stdin:
        start = starts[line.strip()]
        pid = os.fork()
        if pid == 0:
            _be_alone(errors)
            start(arguments)
        _tell(pid)
        _tell(_wait_for_all(pid))


def _tell(number: int) -> None:
    print(number, flush=True)


def _wait_for_all(pid: int) -> int:
    """Wait for a command and for what it has left; return its exit code."""
    codes: dict[int, int] = {}
    while True:
        try:
            ended, status = os.wait()
        except ChildProcessError:
            return codes[pid]
        codes[ended] = os.waitstatus_to_exitcode(status)


def _be_alone(errors: str) -> None:
    """Have a file for stderr, and signals as a command of a terminal has them."""
    null = os.open(os.devnull, os.O_RDWR)
    written = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for stream, opened in enumerate((null, null, written)):
        os.dup2(opened, stream)
    os.close(null)
    os.close(written)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _become_program(arguments: Sequence[str]) -> NoReturn:
    os.execv(sys.executable, [sys.executable, "-m", "inferd", *arguments])


def _run_here(arguments: Sequence[str]) -> NoReturn:
    code = 1
    try:
        subprocess.Popen = _popen  # type: ignore[assignment, misc]  # as it is called
        sys.argv = ["inferd", *arguments]
        code = run_command()
    finally:
        os._exit(code)


_Popen: Final = subprocess.Popen


def _popen(command: Sequence[str], **options: Any) -> "subprocess.Popen[bytes]":
    """Start a downloader, which never gets to the program that it would be."""
    (fd,) = options["pass_fds"]

    def download() -> NoReturn:
        code = 1
        try:
            os.environ.clear()
            os.environ.update(options["env"])
            os.closerange(_FIRST_FD, fd)
            os.closerange(fd + 1, os.sysconf("SC_OPEN_MAX"))
            sys.argv = [*command[-3:]]
            inferd.downloader.__main__.main()
            code = 0
        finally:
            os._exit(code)

    return _Popen(command, preexec_fn=download, **options)


if __name__ == "__main__":
    main()
