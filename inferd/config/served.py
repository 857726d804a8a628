"""The models of the stores that are served by name, and the backends that they would be."""

import errno
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from inferd.config.find_model import located_files
from inferd.config.kinds.kind import BackendKind
from inferd.config.kinds.registry import KINDS, KindRegistry
from inferd.config.settings import BackendSettings, ConfigError, ModelsSettings
from inferd.limits.residency import MAX_SERVED_MODELS
from inferd.models.store.directory import MANIFESTS, StoreError
from inferd.models.store.manifest import ManifestError
from inferd.models.store.names import file_of
from inferd.models.store.store import ModelNotInStoreError, ModelStore
from inferd.models.store.stores import Stores, opened_stores

Stamp = tuple[int, int, int, int]
"""Device, inode, time of change and size of a manifest: another one has another stamp."""

_OPTIONS: Final = ("n_ctx", "n_gpu_layers", "keep_alive_s")
"""Settings of ``[models]`` that those of a backend are made of, where its kind has them."""


_REFUSES_MODEL: Final = (
    ManifestError,
    StoreError,
    ConfigError,
    msgspec.ValidationError,
    OSError,
)
"""Errors for which one model is not served, and the others are."""

_PASSING_ERRNOS: Final = (
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
    errno.EAGAIN,
    errno.EIO,
)
"""Errors that say nothing of what the store has."""


class StoreModel(NamedTuple):
    """A model of the store that is served."""

    settings: BackendSettings
    """Of the backend that it becomes, with the paths and the SHA-256 of its files."""
    stamp: Stamp


class RefusedModel(NamedTuple):
    """A model of the store that cannot be served as it is."""

    reason: str
    """For the operator: it may have paths."""
    is_missing: bool = False
    """Whether the store has no such model."""


class StoreView(NamedTuple):
    """What a look at the stores has found."""

    served: Mapping[str, StoreModel] = MappingProxyType({})
    refused: Mapping[str, RefusedModel] = MappingProxyType({})
    """Those that cannot be served, and why; the name is empty for the stores themselves."""
    failure: str = ""
    """Why a store could not be looked at now, which says nothing of what it has; then all that
    was served before is still served."""


NOTHING_SERVED: Final = StoreView()


def view_stores(
    paths: Sequence[Path],
    models: ModelsSettings,
    before: StoreView = NOTHING_SERVED,
    kinds: KindRegistry = KINDS,
) -> StoreView:
    """Find the models of the stores that are served; this reads files.

    Args:
        paths: of the stores; of a name, the first that has it counts.
        models: which of their models, and with which settings.
        before: an earlier view: manifests that have not changed since are not read again,
            and models whose manifests or stores cannot be read now are served as before.
        kinds: the kinds of backends.

    Bounds:
        ``MAX_SERVED_MODELS``, the first by name; one descriptor more than those of the
        stores' directories.
    """
    if not models.serve:
        return NOTHING_SERVED
    with opened_stores(paths) as stores:
        view = _View(stores, models, before, kinds).read() if len(stores) else None
    missing = (f"{path} is no model store" for path in paths)
    view = view or _found_nothing(models, "; ".join(stores.faults or missing))
    if failures := [*filter(_is_passing, stores.errors)]:
        return _added_to(before, view, "; ".join(map(str, failures)))
    return view


def missing_models(models: ModelsSettings, view: StoreView) -> Iterable[str]:
    """Describe those models that the configuration names and that cannot be served."""
    for name in () if isinstance(models.serve, bool) else models.serve:
        if name in view.refused:
            yield f"models.serve: {name}: {view.refused[name].reason}"


def _found_nothing(models: ModelsSettings, reason: str) -> StoreView:
    """Refuse all models that are named, or the stores as a whole."""
    names = [""] if isinstance(models.serve, bool) else models.serve
    return StoreView(refused={name: RefusedModel(reason) for name in names})


def _added_to(before: StoreView, found: StoreView, failure: str) -> StoreView:
    """Add what a look has found that failed in part to what was served before."""
    served = {**before.served}
    for name, model in found.served.items():
        if len(served) < MAX_SERVED_MODELS:
            served.setdefault(name, model)
    refused = {**found.refused, **before.refused}
    if "" not in before.refused:
        refused.pop("", None)  # that is the failure
    for name in served:
        refused.pop(name, None)
    return StoreView(served, refused, failure)


def _is_passing(error: Exception) -> bool:
    """Return whether a look may find more later, though nothing in the store changes."""
    return isinstance(error, OSError) and error.errno in _PASSING_ERRNOS


class _View:
    """One look at the stores."""

    def __init__(
        self,
        stores: Stores,
        models: ModelsSettings,
        before: StoreView,
        kinds: KindRegistry,
    ) -> None:
        self._stores = stores
        self._models = models
        self._before = before
        self._kinds = kinds

    def read(self) -> StoreView:
        """Read the manifests of the models that are served."""
        if isinstance(self._models.serve, bool):
            return self._read_all()
        return self._read(dict.fromkeys(self._models.serve))

    def _read_all(self) -> StoreView:
        """Read those of all models, and say what is left out."""
        found = self._stores.names()
        names = [*found]
        view = self._read({name: found[name] for name in names[:MAX_SERVED_MODELS]})
        faults = [*self._stores.faults]
        if left_out := names[MAX_SERVED_MODELS:]:
            faults.append(
                f"{len(left_out)} models from {left_out[0]} on are not served: at most "
                f"{MAX_SERVED_MODELS} are; name those to serve in models.serve"
            )
        of_all = {"": RefusedModel("; ".join(faults))} if faults else {}
        return StoreView(view.served, {**view.refused, **of_all})

    def _read(self, found: Mapping[str, ModelStore | None]) -> StoreView:
        """Read the manifests of some models, by name with their stores where known."""
        served: dict[str, StoreModel] = {}
        refused: dict[str, RefusedModel] = {}
        for name, store in found.items():
            try:
                served[name] = self._model(name, store or self._stores.first_with(name))
            except ModelNotInStoreError as error:
                refused[name] = RefusedModel(str(error), is_missing=True)
            except _REFUSES_MODEL as error:
                if _is_passing(error) and name in self._before.served:
                    served[name] = self._before.served[name]
                else:
                    refused[name] = RefusedModel(str(error))
        return StoreView(served, refused)

    def _model(self, name: str, store: ModelStore) -> StoreModel:
        """Describe a model, as before if its manifest has not changed.

        Raises:
            ManifestError: its manifest cannot be used.
            StoreError: it is not there, or a file of it is missing.
            ConfigError: its kind has no such model.
            ValidationError: no backend can have its name.
            OSError: the manifest cannot be read.
        """
        stamp = _stamp(store, name)
        known = self._before.served.get(name)
        if known is not None and known.stamp == stamp:
            return known
        manifest = store.model(name)
        located = located_files(store, manifest)
        kind = self._kinds.named(manifest.kind)
        if kind is None:
            raise StoreError(f"it is for kind = {manifest.kind!r}, which is not there")
        settings = kind.locate(self._settings(kind, name), lambda _: located)
        return StoreModel(settings, stamp)

    def _settings(
        self, kind: BackendKind[BackendSettings], name: str
    ) -> BackendSettings:
        """Make the settings of a model's backend, without its files."""
        options = {
            key: getattr(self._models, key)
            for key in _OPTIONS
            if key in kind.settings.__struct_fields__
        }
        table: dict[str, object] = {"kind": kind.name, "name": name, "load": "demand"}
        return msgspec.convert(table | options, kind.settings)


def _stamp(store: ModelStore, name: str) -> Stamp:
    try:
        status = store.directory.status(MANIFESTS, file_of(name))
    except FileNotFoundError:
        return 0, 0, 0, 0  # then there is no manifest to read either
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size
