"""The kinds of model files, told apart by their first bytes."""

from typing import Final

from inferd.models.store.manifest import Kind

MAGIC_BYTES: Final = 4
_KINDS: Final[dict[bytes, Kind]] = {b"GGUF": "llamacpp", b"lmgg": "whispercpp"}


def kind_of(beginning: bytes) -> Kind | None:
    """Return the kind of backend that loads a file; ``None`` if it is no model file.

    Args:
        beginning: its first bytes, ``MAGIC_BYTES`` or more.
    """
    return _KINDS.get(beginning[:MAGIC_BYTES])
