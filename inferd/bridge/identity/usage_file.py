"""The file of the tokens that were used today, so that a restart does not begin anew.

All bridges of a user add to it, each under a lock of its directory.
"""

import fcntl
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import trio

from inferd.bridge.identity.quota import DailyQuota, DayUsage, add_usage
from inferd.limits.bridge import USAGE_FILE_BYTES, USAGE_LOCK_S, USAGE_S
from inferd.paths import state_directory
from inferd.service.private_file import (
    PrivateFileError,
    read_private,
    replace_private,
)
from inferd.trusted_path import UntrustedError, open_directory
from inferd.wire.codec import DECODE_FAILURES

FILE_NAME: Final = "bridge-usage.json"
_LOCK_RETRY_S: Final = 0.01
_DECODER: Final = msgspec.json.Decoder(DayUsage)


class UsageFileError(Exception):
    """The file cannot be read or written; one line."""


def usage_path() -> Path:
    """Return the path of the file, in the directory of what is kept over restarts."""
    return state_directory() / FILE_NAME


def read_usage(path: Path) -> DayUsage:
    """Read what was used; nothing if there is no file.

    Raises:
        UsageFileError: it cannot be read.
    """
    try:
        data = read_private(path, USAGE_FILE_BYTES)
        return DayUsage() if data is None else _DECODER.decode(data)
    except PrivateFileError as error:
        raise UsageFileError(str(error)) from error
    except DECODE_FAILURES as error:
        raise UsageFileError(f"{path}: {error}") from error


def add_to_file(path: Path, before: DayUsage, now: DayUsage) -> DayUsage:
    """Add to the file what was used between two moments; return what is in it then.

    A file that cannot be read is replaced.

    Raises:
        UsageFileError: it cannot be written, or another bridge has locked it for over
            ``USAGE_LOCK_S``.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        directory = open_directory(path.parent)
        try:
            _lock(directory)
            kept = DayUsage()
            with suppress(UsageFileError):
                kept = read_usage(path)
            total = add_usage(kept, before, now)
            replace_private(directory, path.name, msgspec.json.encode(total) + b"\n")
        finally:
            os.close(directory)
    except UntrustedError as error:
        raise UsageFileError(str(error)) from error
    except OSError as error:
        raise UsageFileError(f"{path}: {error.strerror}") from error
    return total


def _lock(directory: int) -> None:
    """Lock a directory until it is closed.

    Raises:
        OSError: another process has it locked for too long.
    """
    deadline = time.monotonic() + USAGE_LOCK_S
    while True:
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_LOCK_RETRY_S)
        else:
            return


class UsageKeeper:
    """Adds what was used to its file, and what other bridges have added there to the quota.

    Args:
        quota: counts.
        path: of the file.
        failed: is told why it cannot be written, once until it can.
    """

    def __init__(
        self, quota: DailyQuota, path: Path, failed: Callable[[str], None]
    ) -> None:
        self._quota = quota
        self._path = path
        self._failed = failed
        self._written = quota.usage()
        self._is_failing = False

    async def run(self) -> None:
        """Write every ``USAGE_S`` until cancelled; a process that is killed loses that much."""
        while True:
            await trio.sleep(USAGE_S)
            await self.keep()

    async def keep(self) -> None:
        """Add what is new to the file, and count what other bridges have added."""
        usage = self._quota.usage()
        await trio.to_thread.run_sync(self.write, usage)
        self._quota.add_others(usage, self._written)

    def write(self, usage: DayUsage) -> None:
        """Add what is new to the file now, unless nothing is."""
        if usage == self._written:
            return
        try:
            self._written = add_to_file(self._path, self._written, usage)
        except UsageFileError as error:
            if not self._is_failing:
                self._failed(str(error))
            self._is_failing = True
            return
        self._is_failing = False
