"""The file of the tokens that were used today, so that a restart does not begin anew."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import trio

from inferd.bridge.identity.private_file import (
    PrivateFileError,
    read_private,
    replace_private,
)
from inferd.bridge.identity.quota import DailyQuota, DayUsage
from inferd.limits.bridge import USAGE_FILE_BYTES, USAGE_S
from inferd.trusted_path import UntrustedError, open_directory
from inferd.wire.codec import DECODE_FAILURES

FILE_NAME: Final = "bridge-usage.json"
_DECODER: Final = msgspec.json.Decoder(DayUsage)


class UsageFileError(Exception):
    """The file cannot be read or written; one line."""


def usage_path() -> Path:
    """Return the path of the file.

    It is in ``$STATE_DIRECTORY``, which systemd sets, or in ``$XDG_STATE_HOME/inferd``, else
    ``~/.local/state/inferd``.
    """
    if given := os.environ.get("STATE_DIRECTORY"):
        return Path(given.split(":")[0]) / FILE_NAME
    home = Path(os.environ.get("HOME", "/"))
    state = os.environ.get("XDG_STATE_HOME") or home / ".local" / "state"
    return Path(state) / "inferd" / FILE_NAME


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


def write_usage(path: Path, usage: DayUsage) -> None:
    """Replace the file.

    Raises:
        UsageFileError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        directory = open_directory(path.parent)
        try:
            replace_private(directory, path.name, msgspec.json.encode(usage) + b"\n")
        finally:
            os.close(directory)
    except UntrustedError as error:
        raise UsageFileError(str(error)) from error
    except OSError as error:
        raise UsageFileError(f"{path}: {error.strerror}") from error


class UsageKeeper:
    """Writes what was used to its file, where it has changed.

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
            await trio.to_thread.run_sync(self.write, self._quota.usage())

    def write(self, usage: DayUsage) -> None:
        """Write now, unless nothing has changed."""
        if usage == self._written:
            return
        try:
            write_usage(self._path, usage)
        except UsageFileError as error:
            if not self._is_failing:
                self._failed(str(error))
            self._is_failing = True
            return
        self._is_failing = False
        self._written = usage
