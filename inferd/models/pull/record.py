"""What identifies a partial file, kept beside it until it is complete."""

import os
from contextlib import suppress

import msgspec

from inferd.limits.models import MANIFEST_MAX_BYTES
from inferd.models.store.directory import PARTIAL, StoreDirectory


class DownloadRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Where the bytes of a partial file came from."""

    url: str
    etag: str = ""
    n_bytes: int | None = None
    """Of the whole file, as the server stated."""


def read_record(directory: StoreDirectory, key: str) -> DownloadRecord | None:
    """Read the record of a partial file; ``None`` if it has none, or half of one."""
    try:
        descriptor = directory.open_file(PARTIAL, _file_of(key))
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(MANIFEST_MAX_BYTES)
    with suppress(msgspec.MsgspecError, UnicodeDecodeError):
        return msgspec.json.decode(data, type=DownloadRecord)
    return None


def write_record(directory: StoreDirectory, key: str, record: DownloadRecord) -> None:
    """Write the record of a partial file, before the first byte of that."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with os.fdopen(directory.open_file(PARTIAL, _file_of(key), flags), "wb") as file:
        file.write(msgspec.json.encode(record))


def remove_record(directory: StoreDirectory, key: str) -> None:
    """Remove the record of a partial file that is complete, if it is there."""
    with suppress(FileNotFoundError):
        directory.remove(PARTIAL, _file_of(key))


def _file_of(key: str) -> str:
    return f"{key}.json"
