"""Check a model file before the library sees it."""

import hashlib
import hmac
from collections.abc import Callable
from pathlib import Path

from inferd.worker.backend import LoadError

GGUF_MAGIC = b"GGUF"
_HEADER_BYTES = 24
_VERSIONS = range(2, 4)
_HASH_BLOCK_BYTES = 8 * 1024 * 1024


def check_gguf(path: Path) -> None:
    """Refuse what is not a GGUF file.

    Raises:
        LoadError: it is missing, cannot be read, or is something else.
    """
    try:
        if not path.is_file():
            raise LoadError(f"model file not found: {path}")
        with path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
    except OSError as error:
        raise LoadError(f"model file {path}: {error.strerror}") from error
    if len(header) < _HEADER_BYTES or not header.startswith(GGUF_MAGIC):
        raise LoadError(f"not a GGUF file: {path}")
    version = int.from_bytes(header[4:8], "little")
    if version not in _VERSIONS:
        raise LoadError(
            f"GGUF version {version} is not supported (2 and 3 are): {path}"
        )


def check_sha256(path: Path, expected: str, alive: Callable[[], None]) -> None:
    """Compare a file's SHA-256, in constant time, with what it must be.

    Args:
        path: the file.
        expected: 64 lowercase hex digits.
        alive: called after each block, as a sign of life.

    Raises:
        LoadError: it is another.
    """
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_HASH_BLOCK_BYTES):
            digest.update(block)
            alive()
    actual = digest.hexdigest()
    if not hmac.compare_digest(actual, expected):
        raise LoadError(f"SHA-256 of {path} is {actual}, expected {expected}")
