"""Models by the names that a configuration gives them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from inferd.config.kinds.model_paths import LocatedFile, LocatedModel
from inferd.config.settings import ConfigError
from inferd.limits.model_files import MODEL_PARTS
from inferd.models.embedded import UnknownModelError, embedded_model
from inferd.models.store.directory import BLOBS, StoreError
from inferd.models.store.manifest import Manifest, ManifestError, StoredFile
from inferd.models.store.names import InvalidNameError
from inferd.models.store.store import ModelNotInStoreError, ModelStore
from inferd.models.store.stores import opened_stores
from inferd.paths import SYSTEM_MODELS

_PATH_PREFIXES: Final = ("/", "./", "../", "~")
_PATH_SUFFIXES: Final = (".gguf", ".bin")


def find_model(reference: str, *, stores: Sequence[Path]) -> LocatedModel | None:
    """Find the model of a name.

    Args:
        reference: the name of a model in a store, as is ``embedded:NAME``, or the path of a
            file. What begins like a path, ends like a model file or exists as a file is a
            path.
        stores: model stores; the first that has the model counts.

    Returns:
        Its files; ``None`` for a path.

    Raises:
        ConfigError: there is no such model, or its files are missing.
    """
    try:
        is_embedded = embedded_model(reference) is not None
    except UnknownModelError as error:
        raise ConfigError(f"model = {error}") from error
    if is_path(reference) and not is_embedded:
        return None
    try:
        return _stored(reference, stores)
    except ModelNotInStoreError as error:
        if not is_embedded:
            raise ConfigError(f"model = {reference!r}: {error}") from error
        raise ConfigError(
            f"{reference} is not in the model store ({stores[0]}); "
            f"run: {pull_command(reference, stores)}"
        ) from error
    except (StoreError, ManifestError, InvalidNameError, OSError) as error:
        raise ConfigError(f"model = {reference!r}: {error}") from error


def pull_command(reference: str, stores: Sequence[Path]) -> str:
    """Return what to type for an embedded model that is missing."""
    if stores and stores[0] == SYSTEM_MODELS:
        return f"sudo inferd model pull --system {reference}"
    return f"inferd model pull {reference}"


def is_path(reference: str) -> bool:
    """Tell whether a reference to a model is the path of a file, and no name."""
    return (
        reference.startswith(_PATH_PREFIXES)
        or reference.endswith(_PATH_SUFFIXES)
        or Path(reference).is_file()
    )


def _stored(name: str, stores: Sequence[Path]) -> LocatedModel:
    """Find a model in the first store that has it.

    Raises:
        ModelNotInStoreError: none has it.
        StoreError: a file of it is missing, or a store could not be looked into.
    """
    with opened_stores(stores) as opened:
        store = opened.first_with(name)
        return located_files(store, store.model(name))


def located_files(store: ModelStore, manifest: Manifest) -> LocatedModel:
    """Return the files of a model in a store.

    Raises:
        StoreError: one is missing, or there are more parts than any model has.
    """
    if (n_parts := len(manifest.files_of("model"))) > MODEL_PARTS:
        raise StoreError(f"{manifest.name} is in {n_parts} files, over {MODEL_PARTS}")

    def located(file: StoredFile) -> LocatedFile:
        if not store.has_blob(file):
            raise StoreError(
                f"{manifest.name}: {file.name} is missing or not complete; "
                "bring the model again"
            )
        path = store.directory.path_of(BLOBS, file.sha256)
        return LocatedFile(str(path), file.sha256)

    projector = next(map(located, manifest.files_of("projector")), None)
    first, *others = map(located, manifest.files_of("model"))
    return LocatedModel(first, projector, manifest.kind, tuple(others))
