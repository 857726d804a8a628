"""Vectors in a file of NumPy's format, which is a header and rows of numbers."""

import os
import re
import sys
from array import array
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from inferd.cli.batch.output import open_output
from inferd.cli.console import CommandError

HEADER_BYTES: Final = 128
"""Of the whole header: a multiple of 64, as the format wants it, with room for any shape."""
_MAGIC: Final = b"\x93NUMPY\x01\x00"
_NUMBER_BYTES: Final = 4
_SHAPE: Final = re.compile(rb"'descr': '<f4', .*'shape': \((\d+), (\d+)\)")


class VectorFile:
    """Vectors as the rows of an array of 32-bit floats.

    Its header is right after each batch of rows, so that what is interrupted can be read.

    Args:
        path: of the file.
        resumes: whether to go on after the rows that it has.

    Raises:
        CommandError: it cannot be written, or is not such a file.
    """

    def __init__(self, path: Path, *, resumes: bool = False) -> None:
        self._path = path
        self._file = open_output(path, resumes=resumes)
        self._n_numbers = 0
        self.n_done = 0
        """Rows that the file had."""
        try:
            if resumes and self._file.readable():
                self._read_header()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def write(self, vectors: Sequence[Sequence[float]]) -> None:
        """Append rows.

        Raises:
            CommandError: they have another length than those before, or cannot be written.
        """
        self._n_numbers = self._n_numbers or len(vectors[0])
        rows = array("f")
        for vector in vectors:
            if len(vector) != self._n_numbers:
                raise CommandError(
                    f"{self._path} has vectors of {self._n_numbers} numbers, not {len(vector)}"
                )
            rows.extend(vector)
        if sys.byteorder == "big":
            rows.byteswap()
        try:
            self._append(rows.tobytes(), len(vectors))
        except OSError as error:
            raise CommandError(f"{self._path}: {error.strerror}") from error

    def _append(self, rows: bytes, n_rows: int) -> None:
        row_bytes = self._n_numbers * _NUMBER_BYTES
        self._file.seek(HEADER_BYTES + self.n_done * row_bytes)
        self._file.write(rows)
        self._file.flush()
        self.n_done += n_rows
        self._file.seek(0)
        self._file.write(header(self.n_done, self._n_numbers))
        self._file.flush()

    def _read_header(self) -> None:
        head = self._file.read(HEADER_BYTES)
        if not head:
            return
        shape = _SHAPE.search(head)
        if not head.startswith(_MAGIC) or shape is None:
            raise CommandError(f"{self._path} is no file of inferd embed")
        self.n_done, self._n_numbers = int(shape[1]), int(shape[2])
        end = HEADER_BYTES + self.n_done * self._n_numbers * _NUMBER_BYTES
        if self._file.seek(0, os.SEEK_END) < end:
            raise CommandError(f"{self._path} has fewer rows than its header says")
        self._file.truncate(end)


def header(n_rows: int, n_numbers: int) -> bytes:
    """Make the header of an array."""
    shape = f"'fortran_order': False, 'shape': ({n_rows}, {n_numbers}), "
    text = f"{{'descr': '<f4', {shape}}}"
    head = _MAGIC + (HEADER_BYTES - len(_MAGIC) - 2).to_bytes(2, "little")
    return head + text.encode().ljust(HEADER_BYTES - len(head) - 1) + b"\n"
