"""The results of a batch: JSON lines on stdout, or in a file that is gone on with."""

import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

import msgspec

from inferd.cli.console import CommandError
from inferd.terminal import print_json

READ_BYTES: Final = 1024 * 1024
"""Bytes of an output that are read at once to count its lines."""


def open_output(path: Path, *, resumes: bool) -> BinaryIO:
    """Open the file of a command's results.

    Args:
        path: of the file.
        resumes: whether to go on with it; else it must not exist, or be empty.

    Raises:
        CommandError: it cannot be written, or exists and is not to be gone on with.
    """
    try:
        exists = path.exists() and (resumes or not path.stat().st_size)
        return path.open("r+b" if exists else "xb")
    except FileExistsError as error:
        raise CommandError(
            f"{path} exists", hint="--resume, to go on with it, or another file"
        ) from error
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from error


class LineOutput:
    """Results as JSON lines, on stdout or in a file.

    Args:
        path: of the file; ``None`` for stdout.
        resumes: whether to go on after the whole lines that the file has.

    Raises:
        CommandError: the file cannot be written.
    """

    def __init__(self, path: Path | None, *, resumes: bool = False) -> None:
        self.n_done = 0
        """Results that the file had."""
        self._path = path
        self._file: BinaryIO | None = None
        if path is None and resumes:
            raise CommandError("--resume needs --output FILE, which has what is done")
        if path is not None:
            self._file = open_output(path, resumes=resumes)
            self.n_done = _keep_whole_lines(self._file) if resumes else 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()

    def write(self, fields: Mapping[str, object]) -> None:
        """Write a line, at once.

        Raises:
            CommandError: it cannot be written.
        """
        line = msgspec.json.encode(fields)
        if self._file is None:
            print_json(line)
            return
        try:
            self._file.write(line + b"\n")
            self._file.flush()
        except OSError as error:
            raise CommandError(f"{self._path}: {error.strerror}") from error


def _keep_whole_lines(file: BinaryIO) -> int:
    """Count the lines of a file, and cut off one that was not written to its end."""
    if not file.readable():  # it is new
        return 0
    n_lines = end = position = 0
    while data := file.read(READ_BYTES):
        n_lines += data.count(b"\n")
        if (last := data.rfind(b"\n")) >= 0:
            end = position + last + 1
        position += len(data)
    file.truncate(end)
    file.seek(end, os.SEEK_SET)
    return n_lines
