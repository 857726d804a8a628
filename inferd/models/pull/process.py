"""The downloader as a command sees it: a process that is started, asked and ended."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final, Self
from urllib.parse import urlsplit

import msgspec

from inferd.limits.models import (
    PULL_ANSWER_S,
    PULL_BLOCK_BYTES,
    PULL_CONNECT_S,
    PULL_END_S,
    PULL_MESSAGE_BYTES,
    PULL_START_S,
)
from inferd.models.pull.errors import AGAIN, PullError, StalledError, error_of
from inferd.models.pull.messages import (
    HEADER,
    MESSAGE,
    REPLIES,
    DownloaderReady,
    End,
    Failure,
    ListHub,
    Listing,
    Reply,
    Task,
    framed,
)

PROGRAM: Final = ("-P", "-m", "inferd.downloader")
PASSED_ON: Final = (
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "HF_ENDPOINT", "LANG", "PATH", "PYTHONPATH"),
    *("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy"),
    "PYTHONDONTWRITEBYTECODE",
)
"""Variables of the environment that the downloader gets; a token is not among them."""
SETTINGS: Final = {
    "HF_HUB_DISABLE_TELEMETRY": "1",  # it would ask the hub which programs call it
    "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
}
"""Variables that the hub's library reads."""
_STDERR_CHARS: Final = 300


class Downloader:
    """A running downloader; use it as a context, whose end ends it.

    Args:
        environ: the command's environment.
        ca_file: of the certificate authorities to trust; ``None`` for those of the system.
    """

    def __init__(self, environ: Mapping[str, str], ca_file: str | None = None) -> None:
        passed_on = {name: environ[name] for name in PASSED_ON if name in environ}
        self._environ = (SETTINGS | passed_on) | (
            {} if ca_file is None else {"SSL_CERT_FILE": ca_file}
        )
        self._host = ""
        self._uses_hub = False
        """Whether a repository was listed: the files that follow are those of the hub."""
        self._is_busy = False
        self.missing: tuple[str, ...] = ()
        """What the kernel lacks to restrict it."""

    def __enter__(self) -> Self:
        """Start it, and wait until it is restricted.

        Raises:
            PullError: it did not start; a package that it needs may be missing.
        """
        self._start()
        return self

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            arguments = (str(theirs.fileno()), str(os.getpid()))
            self._process = subprocess.Popen(  # noqa: S603  # our own arguments
                [sys.executable, *PROGRAM, *arguments],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=self._environ,
                process_group=0,  # a terminal's keys are for the command
            )
        self._socket = ours
        try:
            self.missing = self._await_ready()
        except BaseException:
            self.close()
            raise
        self._is_busy = False

    def _await_ready(self) -> tuple[str, ...]:
        match self.receive(PULL_START_S):
            case DownloaderReady(missing=missing):
                return missing
            case reply:
                raise _unexpected(reply)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process, whatever it does."""
        self._socket.close()
        self._process.kill()
        self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def send(self, task: Task) -> None:
        """Send a task; one that is not finished is given up, with its process.

        Raises:
            PullError: the process has ended.
        """
        if self._is_busy:
            self.close()
            self._start()
        self._is_busy = True
        self._uses_hub = self._uses_hub or isinstance(task, ListHub)
        self._host = (
            "the hub"
            if isinstance(task, ListHub)
            else urlsplit(task.url).hostname or ""
        )
        try:
            self._socket.settimeout(PULL_START_S)
            self._socket.sendall(framed(task))
        except OSError as error:
            raise self._ended() from error

    def list_hub(self, task: ListHub) -> Listing:
        """List a repository of the hub.

        Raises:
            PullError: the hub cannot be asked, or has no such repository or revision.
        """
        self.send(task)
        match self.receive(PULL_CONNECT_S + PULL_ANSWER_S):
            case Listing() as listing:
                return listing
            case reply:
                raise _unexpected(reply)

    def receive(self, timeout_s: float) -> Reply | bytes:
        """Receive a message, or bytes of a file.

        Raises:
            StalledError: none came in time.
            PullError: what came is a failure, or not valid.
        """
        deadline = time.monotonic() + timeout_s
        try:
            kind, n_bytes = HEADER.unpack(self._read(HEADER.size, deadline))
            if kind != MESSAGE:
                if not 0 < n_bytes <= PULL_BLOCK_BYTES:
                    raise _unexpected(n_bytes)
                return self._read(n_bytes, deadline)
            if n_bytes > PULL_MESSAGE_BYTES:
                raise _unexpected(n_bytes)
            reply = REPLIES.decode(self._read(n_bytes, deadline))
        except TimeoutError as error:
            raise StalledError(
                f"{self._host or 'the downloader'} sent nothing for {timeout_s:g} s",
                AGAIN,
            ) from error
        except msgspec.MsgspecError as error:
            raise _unexpected(error) from error
        self._is_busy = not isinstance(reply, End | Listing | Failure)
        if isinstance(reply, Failure):
            raise error_of(reply, self._host, is_hub=self._uses_hub)
        return reply

    def _read(self, n_bytes: int, deadline: float) -> bytes:
        data = bytearray(n_bytes)
        rest = memoryview(data)
        while rest:
            self._socket.settimeout(max(1e-6, deadline - time.monotonic()))
            try:
                n_received = self._socket.recv_into(rest)
            except ConnectionError as error:
                raise self._ended() from error
            if not n_received:
                raise self._ended()
            rest = rest[n_received:]
        return bytes(data)

    def _ended(self) -> PullError:
        """Describe how the process ended."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(PULL_END_S)
        self._process.kill()
        code = self._process.wait()
        lines = [*self._last_lines()]
        reason = f": {lines[-1][:_STDERR_CHARS]}" if lines else ""
        return PullError(f"the downloader ended with code {code}{reason}", AGAIN)

    def _last_lines(self) -> Iterator[str]:
        """Read stderr, of which the kernel keeps some pages."""
        stderr = self._process.stderr
        if stderr is not None and not stderr.closed:
            data = stderr.read()
            yield from data.decode(errors="replace").split("\n")[:-1]


def _unexpected(what: object) -> PullError:
    return PullError(f"the downloader sent what was not asked for: {what!r:.100}")
