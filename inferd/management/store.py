"""The models of the store, as the bridge is told of them and has them removed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from inferd.management.policy import HelperRefusedError
from inferd.models.store.directory import StoreDirectory, StoreError
from inferd.models.store.manifest import Manifest, ManifestError
from inferd.models.store.store import ModelNotInStoreError, ModelStore
from inferd.terminal import escape
from inferd.wire.management import ManagedFile, ManagedModel

_BUSY: Final = (
    "the store is being changed, or cannot be used; the helper's log says why"
)


@contextmanager
def managed_store(path: Path, *, makes: bool = False) -> Iterator[ModelStore]:
    """Open a store.

    Args:
        path: of the store.
        makes: whether one that does not exist is made.

    Raises:
        HelperRefusedError: it cannot be used, or the body failed with an error of the store.
    """
    with _refusals():
        directory = StoreDirectory.open(path, makes=makes)
        if directory is None:
            raise HelperRefusedError("model_not_found", "the store has no models")
        with directory:
            yield ModelStore(directory)


@contextmanager
def _refusals() -> Iterator[None]:
    """Tell errors of the store without paths of the machine."""
    try:
        yield
    except ModelNotInStoreError as error:
        text = "the store has no model of that name"
        raise HelperRefusedError("model_not_found", text) from error
    except ManifestError as error:
        text = "the model's manifest cannot be used; the helper's log says why"
        raise HelperRefusedError("failed", text) from error
    except (StoreError, OSError) as error:
        raise HelperRefusedError("failed", _BUSY) from error


def managed_models(path: Path) -> list[ManagedModel]:
    """List the models of a store; one whose manifest cannot be used is left out.

    Raises:
        HelperRefusedError: the store cannot be used.
    """
    with _refusals():
        directory = StoreDirectory.open(path, makes=False)
        if directory is None:  # nothing was pulled yet
            return []
        with directory:
            store = ModelStore(directory)
            return [
                _managed(store, model)
                for model in store.models()
                if isinstance(model, Manifest)
            ]


def managed_model(path: Path, name: str) -> ManagedModel:
    """Describe a model of a store.

    Raises:
        HelperRefusedError: there is none, or it cannot be read.
    """
    with managed_store(path) as store:
        return _managed(store, store.model(name))


def remove_model(path: Path, name: str, check_source: Callable[[str], None]) -> int:
    """Remove a model, and its files that no other model uses.

    Args:
        path: of the store.
        name: of the model.
        check_source: raises unless models of a source may be removed.

    Returns:
        The bytes that are free now.

    Raises:
        HelperRefusedError: there is none, or it may not be removed.
    """
    with managed_store(path) as store:
        check_source(store.model(name).source)
        return sum(file.n_bytes for file in store.remove(name))


def _managed(store: ModelStore, model: Manifest) -> ManagedModel:
    return ManagedModel(
        name=model.name,
        kind=model.kind,
        source=escape(model.source),
        revision=escape(model.revision),
        license=escape(model.license),
        created=escape(model.created),
        files=tuple(
            ManagedFile(
                name=escape(file.name),
                sha256=file.sha256,
                n_bytes=file.n_bytes,
                role=file.role,
            )
            for file in model.files
        ),
        is_complete=all(map(store.has_blob, model.files)),
    )
