"""The store that a command works on, and how it shows sizes and progress."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from inferd.cli.console import CommandError, ProgressLine
from inferd.models.store.directory import StoreDirectory, StoreError
from inferd.models.store.manifest import ManifestError
from inferd.models.store.names import InvalidNameError
from inferd.models.store.store import ModelStore
from inferd.models.store.stores import opened_stores
from inferd.paths import SYSTEM_MODELS, model_stores, models_directory

_UNITS: Final = ("B", "kB", "MB", "GB", "TB")
_STEP: Final = 1000
_TEN: Final = 10


@contextmanager
def opened_store(
    path: Path | None = None, *, makes: bool = False
) -> Iterator[ModelStore]:
    """Open a store.

    Args:
        path: of the store; ``None`` for the one that commands change.
        makes: whether a store that does not exist is made, and changed.

    Raises:
        CommandError: there is none, or the body failed with an error of the store.
    """
    path = path or models_directory()
    try:
        directory = _open(path, makes=makes)
        if directory is None:
            system = " --system" if path == SYSTEM_MODELS else ""
            raise CommandError(
                f"there is no model store at {path}",
                f"bring a model first: inferd model pull{system} SOURCE, or import FILE",
            )
        with directory:
            yield ModelStore(directory)
    except PermissionError as error:
        raise CommandError(
            f"the model store {path}: {error.strerror}", _permission_hint(path)
        ) from error
    except (StoreError, ManifestError, InvalidNameError) as error:
        raise CommandError(str(error)) from error


def store_with(name: str) -> Path:
    """Return the first store that has a model; the one that commands change if none has."""
    try:
        with opened_stores(model_stores()) as stores:
            return stores.first_with(name).directory.path
    except (StoreError, InvalidNameError):
        return models_directory()


def _open(path: Path, *, makes: bool) -> StoreDirectory | None:
    """Open a store.

    Raises:
        CommandError: its directory cannot be opened, made or written to.
    """
    try:
        directory = StoreDirectory.open(path, makes=makes)
        if makes and directory is not None:
            directory.check_writable()
    except OSError as error:
        hint = "choose another directory: INFERD_MODELS=DIRECTORY" if makes else ""
        if path == SYSTEM_MODELS:
            hint = _permission_hint(path)
        raise CommandError(f"the model store {path}: {error.strerror}", hint) from error
    return directory


def _permission_hint(path: Path) -> str:
    """Return what to do where this user may not write to a store."""
    is_roots = path == SYSTEM_MODELS and os.geteuid() != 0
    return "the same command with sudo" if is_roots else ""


def size(n_bytes: int) -> str:
    """Write a number of bytes with three digits at most, as file managers do."""
    amount, unit = float(n_bytes), 0
    while amount >= _STEP - 0.5 and unit < len(_UNITS) - 1:
        amount, unit = amount / _STEP, unit + 1
    digits = 1 if unit and amount < _TEN else 0
    return f"{amount:.{digits}f} {_UNITS[unit]}"


class FileProgress:
    """The progress of one file, on a line that is overwritten, if stderr is a terminal."""

    def __init__(self, verb: str, name: str) -> None:
        self._text = f"{verb} {name}"
        self._line = ProgressLine()
        self._percent = -1

    def update(self, n_done: int, n_bytes: int) -> None:
        """Show how many bytes of the file are done."""
        percent = 100 * n_done // max(1, n_bytes)
        if percent != self._percent:
            self._percent = percent
            self._line.show(f"{self._text}: {percent} % of {size(n_bytes)}")

    def clear(self) -> None:
        """Empty the line."""
        self._line.clear()
