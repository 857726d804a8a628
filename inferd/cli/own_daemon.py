"""A daemon that a command starts for itself, and stops with itself."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from inferd.cli.console import CommandError
from inferd.client.discovery import NoDaemonError
from inferd.client.sync import wait_until_ready
from inferd.terminal import print_stderr
from inferd.wire.status import AnyStatus

LOAD_S: Final = 300.0
"""Timeout for loading the model, seconds."""
STOP_S: Final = 20.0
"""Seconds until the daemon has usually stopped: after that a user is told why it has
not, and it is killed if its command has failed."""


@contextmanager
def own_daemon(
    name: str, options: Sequence[str], directory: Path | None, log: Path
) -> Iterator[None]:
    """Run a daemon inside the ``with`` block.

    Ctrl-C in the terminal is for the command alone.

    Args:
        name: before the lines that say how far it is.
        options: of ``inferd serve``.
        directory: of its sockets; ``None`` for the default one.
        log: a file for what it writes on stderr.

    Raises:
        CommandError: it does not start, or ends with an error.
    """
    with log.open("w") as stderr:
        daemon = subprocess.Popen(  # noqa: S603  # this program
            [sys.executable, "-m", "inferd", "serve", *options],
            stdin=subprocess.DEVNULL,
            stderr=stderr,
            env={**os.environ, "NOTIFY_SOCKET": ""},
            process_group=0,
        )
    try:
        _wait(name, daemon, directory, log)
        yield
        daemon.terminate()
        if code := _wait_for_end(name, daemon):
            raise CommandError(f"the daemon ended with exit code {code}")
    finally:
        _end(daemon)


def _wait_for_end(name: str, daemon: subprocess.Popen[bytes]) -> int:
    """Wait until the daemon has answered other clients, for which it has `limits.drain_s`."""
    try:
        return daemon.wait(STOP_S)
    except subprocess.TimeoutExpired:
        print_stderr(f"{name}: the daemon still answers other clients; Ctrl-C ends it")
        return daemon.wait()


def _end(daemon: subprocess.Popen[bytes]) -> None:
    """End a daemon that runs although its command does not go on."""
    if daemon.poll() is None:
        daemon.terminate()
        try:
            daemon.wait(STOP_S)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()


def _wait(
    name: str, daemon: subprocess.Popen[bytes], directory: Path | None, log: Path
) -> None:
    def tell(status: AnyStatus) -> None:
        words = (status.status, status.phase)
        print_stderr(f"{name}: " + " ".join(word for word in words if word))

    print_stderr(f"{name}: starting a private daemon")
    try:
        wait_until_ready(
            directory,
            timeout_s=LOAD_S,
            on_status=tell,
            should_stop=lambda: daemon.poll() is not None,
        )
    except NoDaemonError as error:
        lines = log.read_text().strip().splitlines() or [str(error)]
        raise CommandError(lines[-1].removeprefix("error: ")) from error
