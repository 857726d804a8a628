"""Stores for tests, and models in them."""

import hashlib
import os
from pathlib import Path

from inferd.models.store.blobs import PartialFile
from inferd.models.store.directory import BLOBS, MANIFESTS, StoreDirectory
from inferd.models.store.manifest import Manifest, StoredFile
from inferd.models.store.store import ModelStore


def open_store(path: Path) -> ModelStore:
    """Open the store of a path, made where it is missing."""
    directory = StoreDirectory.open(path, makes=True)
    assert directory is not None
    return ModelStore(directory)


def add_file(store: ModelStore, data: bytes, key: str = "key") -> StoredFile:
    """Write a file into the store."""
    with PartialFile(store.directory, key) as partial:
        partial.write(data)
        sha256 = partial.finish()
    return StoredFile(name="m.gguf", sha256=sha256, n_bytes=len(data))


def add_model(store: ModelStore, name: str, *contents: bytes) -> Manifest:
    """Write a model into the store."""
    files = tuple(add_file(store, data) for data in contents)
    manifest = Manifest(name=name, source="test", files=files)
    store.publish(manifest)
    return manifest


def assert_whole(store: ModelStore) -> None:
    """Check that every model of the store can be used, and every blob is what it says."""
    for manifest in store.models():
        assert isinstance(manifest, Manifest)
        for file in manifest.files:
            os.close(store.open_blob(file))
    for name in store.directory.names(BLOBS):
        data = store.directory.path_of(BLOBS, name).read_bytes()
        assert hashlib.sha256(data).hexdigest() == name


def manifests(store: ModelStore) -> list[str]:
    """List the files of the manifests."""
    return store.directory.names(MANIFESTS)
