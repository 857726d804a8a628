"""Daemons that are starved, wrapped and killed."""

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.daemon.harness import BAD_LEVELS, SERVE, Config, DaemonProcess
from torture.litter import children_of

WORKER: Final = b"inferd.worker"
"""In the command line of every worker."""


class Victim(DaemonProcess):
    """A daemon with a hard life.

    Args:
        config: tables of its configuration.
        environ: variables to add to its environment.
        prefix: words before its command, which end in it by ``exec``.
        excused: events of its log that tell of what was done to it, not of a bug.
    """

    def __init__(
        self,
        config: Config,
        *,
        environ: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        excused: Sequence[str] = (),
    ) -> None:
        super().__init__(config, environ=environ)
        self._prefix = prefix
        self._excused = excused
        self.stderr_fd: int | None = None
        """Where its log goes instead of a file, if anywhere."""

    def spawn(self) -> None:
        """Start it, and wait for nothing."""
        fd = self.stderr_fd
        stderr = self._log.open("wb") if fd is None else os.fdopen(os.dup(fd), "wb")
        with stderr:
            self._process = subprocess.Popen(
                [*self._prefix, *SERVE, str(self.config_file)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                env=self._environ,
            )

    def workers(self) -> list[int]:
        """List the workers that it has started and that have not ended."""
        return [pid for pid in children_of(self.pid) if WORKER in command_of(pid)]

    def _check_log(self) -> None:
        bad = [
            line
            for line in self.log_lines()
            if line["level"] in BAD_LEVELS
            and not any(each in line.values() for each in self._excused)
        ]
        assert not bad, f"the daemon logged a bug: {bad}"  # noqa: S101  # as the harness does


def command_of(pid: int) -> bytes:
    """Give a process's command line; nothing of one that has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@contextmanager
def running(daemon: Victim) -> Iterator[Victim]:
    """Run a daemon while inside; then end it and see that its log tells of no bug.

    Raises:
        AssertionError: it does, or the daemon did not end as it should.
    """
    try:
        yield daemon.start()
    finally:
        daemon.finish()
