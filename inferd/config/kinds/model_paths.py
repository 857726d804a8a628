"""The paths of the model files that settings name."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from inferd.config.settings import ConfigError


class LocatedFile(NamedTuple):
    """A file of a model."""

    path: str
    sha256: str | None
    """Its SHA-256, if it is in a store or embedded."""


class LocatedModel(NamedTuple):
    """The files of a model."""

    model: LocatedFile
    """The file, or the first part of one that was split."""
    projector: LocatedFile | None = None
    """``None`` if it has none, or is not in a store."""
    kind: str | None = None
    """Kind of the backends that it is for; ``None`` if that is not known."""
    parts: tuple[LocatedFile, ...] = ()
    """The other parts, in order."""


FindModel = Callable[[str], LocatedModel | None]
"""Finds the model of a name; ``None`` for the path of a file. Raises ``ConfigError``."""


def locate_model_files(
    reference: str, *, backend: str, kind: str, find: FindModel
) -> LocatedModel:
    """Find the files of a model.

    Args:
        reference: from the configuration: a name, or the path of a file.
        backend: name of the backend, for messages.
        kind: its kind, which must be the one that the model is for.
        find: finds models by name.

    Raises:
        ConfigError: there is no such model, it is for another kind, its files are missing,
            or the path cannot be expanded.
    """
    try:
        found = find(reference)
    except ConfigError as error:
        raise ConfigError(f"backend {backend}: {error}") from error
    if found is None:
        path = absolute_path(reference, backend=backend, key="model")
        return LocatedModel(LocatedFile(path, None))
    if found.kind not in {None, kind}:
        raise ConfigError(
            f'backend {backend}: {reference} is for kind = "{found.kind}", not "{kind}"'
        )
    return found


def absolute_path(reference: str, *, backend: str, key: str) -> str:
    """Make a path absolute, and expand its home directory.

    Raises:
        ConfigError: the path cannot be expanded, or is not UTF-8.
    """
    try:
        path = str(Path(reference).expanduser().absolute())
        path.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"backend {backend}: the path of {key} is not UTF-8"
        ) from error
    except RuntimeError as error:
        raise ConfigError(
            f"backend {backend}: {key} = {reference!r}: no such home directory"
        ) from error
    return path
