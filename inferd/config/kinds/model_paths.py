"""The paths of the model files that settings name."""

from pathlib import Path
from typing import NamedTuple

from inferd.config.settings import ConfigError
from inferd.models.embedded import UnknownModelError, embedded_model


class LocatedModel(NamedTuple):
    """A model file."""

    path: str
    sha256: str | None
    """Its SHA-256, if it is an embedded model."""


def locate_model_file(
    reference: str, *, backend: str, kind: str, cache: Path
) -> LocatedModel:
    """Find the model file that a reference, ``embedded:NAME`` or a path, is about.

    Args:
        reference: from the configuration.
        backend: name of the backend, for messages.
        kind: its kind, which must be the one that an embedded model is for.
        cache: directory of the embedded models.

    Raises:
        ConfigError: there is no such model, its file is not in the cache, or the path
            cannot be expanded.
    """
    try:
        model = embedded_model(reference)
    except UnknownModelError as error:
        raise ConfigError(f"backend {backend}: model = {error}") from error
    if model is None:
        path = absolute_path(reference, backend=backend, key="model")
        return LocatedModel(path, None)
    if model.kind != kind:
        raise ConfigError(
            f'backend {backend}: {reference} is for kind = "{model.kind}", not "{kind}"'
        )
    path_in_cache = model.path_in(cache)
    if not path_in_cache.is_file():
        raise ConfigError(
            f"backend {backend}: {reference} is not in the cache ({path_in_cache}); "
            f"run: python -m inferd.models {reference}"
        )
    return LocatedModel(str(path_in_cache), model.sha256)


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
