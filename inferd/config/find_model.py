"""Models by the names that a configuration gives them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from inferd.config.kinds.model_paths import LocatedFile, LocatedModel
from inferd.config.settings import ConfigError
from inferd.limits.model_files import MODEL_PARTS
from inferd.models.embedded import EmbeddedModel, UnknownModelError, embedded_model
from inferd.models.store.directory import BLOBS, StoreDirectory, StoreError
from inferd.models.store.manifest import Manifest, ManifestError, StoredFile
from inferd.models.store.names import InvalidNameError
from inferd.models.store.store import (
    ModelNotInStoreError,
    ModelStore,
)

_PATH_PREFIXES: Final = ("/", "./", "../", "~")
_PATH_SUFFIXES: Final = (".gguf", ".bin")


def find_model(
    reference: str, *, cache: Path, stores: Sequence[Path]
) -> LocatedModel | None:
    """Find the model of a name.

    Args:
        reference: ``embedded:NAME``, the name of a model in a store, or the path of a file.
            What begins like a path, ends like a model file or exists as a file is a path.
        cache: directory of the embedded models.
        stores: model stores; the first that has the model counts.

    Returns:
        Its files; ``None`` for a path.

    Raises:
        ConfigError: there is no such model, or its files are missing.
    """
    try:
        embedded = embedded_model(reference)
    except UnknownModelError as error:
        raise ConfigError(f"model = {error}") from error
    if embedded is not None:
        return _embedded(embedded, reference, cache)
    if is_path(reference):
        return None
    try:
        return _stored(reference, stores)
    except (StoreError, ManifestError, InvalidNameError, OSError) as error:
        raise ConfigError(f"model = {reference!r}: {error}") from error


def _embedded(model: EmbeddedModel, reference: str, cache: Path) -> LocatedModel:
    path = model.path_in(cache)
    if not path.is_file():
        raise ConfigError(
            f"{reference} is not in the cache ({path}); "
            f"run: python -m inferd.models {reference}"
        )
    return LocatedModel(LocatedFile(str(path), model.sha256), kind=model.kind)


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
        StoreError: none has it, or a file of it is missing.
    """
    reasons: list[str] = []
    for path in stores:
        directory = StoreDirectory.open(path, makes=False)
        if directory is None:
            continue
        with directory:
            store = ModelStore(directory)
            try:
                return located_files(store, store.model(name))
            except ModelNotInStoreError as error:
                reasons.append(str(error))
    raise StoreError(
        "; ".join(reasons) or "there is no file of this path, and no model store"
    )


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
