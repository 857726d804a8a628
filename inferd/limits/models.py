"""Bounds of the model store."""

from typing import Final

MODEL_NAME_MAX_CHARS: Final = 128
"""Characters of a model's name; requests have the same bound."""
MODEL_TEXT_MAX_CHARS: Final = 4096
"""Characters of a source, revision or licence in a manifest: an address fits."""
FILE_NAME_MAX_CHARS: Final = 255
"""Characters of a file's name; the file systems' own bound."""
MODEL_MAX_FILES: Final = 1024
"""Files of a model; the largest models on hubs are split into about 200."""
MANIFEST_MAX_BYTES: Final = 1024 * 1024
"""Bytes of a manifest; one of ``MODEL_MAX_FILES`` files has about half of it."""
STORE_MAX_MODELS: Final = 10_000
"""Models of a store that are listed. More are an error: the directory is then no store, and
reading it would take too long."""
BLOB_BLOCK_BYTES: Final = 1024 * 1024
"""Bytes of a model that are copied and hashed at a time."""
STORE_FREE_BYTES: Final = 64 * 1024 * 1024
"""Bytes of the file system that a new model leaves free, for manifests and logs."""
LOCK_WAIT_S: Final = 30.0
"""Seconds that a command waits for another to finish a change; a change takes milliseconds,
as files are written before it."""
FOUND_MAX_FILES: Final = 100_000
"""Files below the cache of another program that are looked at; large caches have thousands."""
