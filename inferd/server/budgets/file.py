"""The file of what was used of budgets, so that a restart does not begin anew."""

import os
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from inferd.admission.budget import BudgetUse
from inferd.limits.server import BUDGET_FILE_BYTES, MAX_KEPT_BUDGETS
from inferd.service.private_file import (
    PrivateFileError,
    read_private,
    replace_private,
)
from inferd.trusted_path import UntrustedError, open_directory
from inferd.wire.codec import DECODE_FAILURES

FILE_NAME: Final = "budgets.json"
_DECODER: Final = msgspec.json.Decoder(
    Annotated[dict[str, BudgetUse], Meta(max_length=MAX_KEPT_BUDGETS)]
)


class BudgetFileError(Exception):
    """The file cannot be read or written; one line."""


def read_uses(path: Path) -> dict[str, BudgetUse]:
    """Read what was used, by the names of backends; nothing if there is no file.

    Raises:
        BudgetFileError: it cannot be read, or is none.
    """
    try:
        data = read_private(path, BUDGET_FILE_BYTES)
        return {} if data is None else _DECODER.decode(data)
    except PrivateFileError as error:
        raise BudgetFileError(str(error)) from error
    except DECODE_FAILURES as error:
        raise BudgetFileError(f"{path}: {error}") from error


def write_uses(path: Path, uses: dict[str, BudgetUse]) -> None:
    """Replace the file as a whole; a thread may do it.

    Raises:
        BudgetFileError: it cannot be written; it is as it was.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        directory = open_directory(path.parent)
        try:
            replace_private(directory, path.name, msgspec.json.encode(uses) + b"\n")
        finally:
            os.close(directory)
    except UntrustedError as error:
        raise BudgetFileError(str(error)) from error
    except OSError as error:
        raise BudgetFileError(f"{path}: {error.strerror}") from error
