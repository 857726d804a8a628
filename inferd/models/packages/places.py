"""Where on this machine a file of a model may be already."""

from pathlib import Path

from inferd.models.store.directory import BLOBS
from inferd.paths import (
    OLDER_SYSTEM_CACHE,
    SYSTEM_MODELS,
    cache_directory,
    own_models_directory,
)


def places_of_files() -> list[str]:
    """List where this user's files of models may be, besides the store of the command.

    They are the user's own store, that of the machine, and the directories in which
    versions before had the embedded models.
    """
    stores = (own_models_directory(), SYSTEM_MODELS)
    caches = (cache_directory(), OLDER_SYSTEM_CACHE)
    return [
        *(f"{_literal(store)}/{BLOBS}/{{sha256}}" for store in stores),
        *(f"{_literal(cache)}/models/{{sha256}}/{{name}}" for cache in caches),
    ]


def _literal(path: Path) -> str:
    return str(path).replace("{", "{{").replace("}", "}}")
