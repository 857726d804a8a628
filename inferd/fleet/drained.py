"""Which members get no new requests: a file beside the fleet file."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from inferd.fleet.bounds import MAX_FLEET_FILE_BYTES
from inferd.fleet.entry import haproxy_config, smg_manifest
from inferd.fleet.file import Fleet, FleetError
from inferd.service.private_file import (
    PrivateFileError,
    read_private,
    replace_private,
)
from inferd.trusted_path import UntrustedError, open_directory


def drained_names(fleet: Fleet) -> set[str]:
    """Read the names of members that are drained.

    Raises:
        FleetError: the file cannot be read.
    """
    path = _path(fleet)
    try:
        data = read_private(path, MAX_FLEET_FILE_BYTES)
        return msgspec.json.decode(data, type=set[str]) if data else set()
    except (PrivateFileError, msgspec.MsgspecError) as error:
        raise FleetError(f"{path}: {error}") from error


@contextmanager
def changing_drained(fleet: Fleet) -> Iterator[set[str]]:
    """Yield the names to change; on leaving, they and the files of the entry are written.

    Nobody else changes them meanwhile. Of members that are no longer there, none is kept.

    Raises:
        FleetError: a file cannot be read or written, or others may change its directory.
    """
    with _locked(fleet.path.parent):
        names = drained_names(fleet)
        yield names
        names &= {member.name for member in fleet.members}
        _replace(_path(fleet), msgspec.json.encode(sorted(names)))
        write_entry_files(fleet, names)


def write_entry_files(fleet: Fleet, drained: set[str]) -> list[Path]:
    """Write what smg and haproxy read; return where.

    Each file is replaced as a whole, so that no reader sees half of it.

    Raises:
        FleetError: one cannot be written.
    """
    settings = fleet.settings
    written = [(fleet.place(settings.smg_file), smg_manifest(fleet, drained))]
    if settings.haproxy_file:
        path = fleet.place(settings.haproxy_file)
        written.append((path, haproxy_config(fleet, drained)))
    for path, data in written:
        _replace(path, data)
    return [path for path, _ in written]


def _path(fleet: Fleet) -> Path:
    return fleet.path.with_suffix(".drained.json")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    try:
        directory = open_directory(path)
    except (OSError, UntrustedError) as error:
        raise FleetError(f"{path}: {error}") from error
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)


def _replace(path: Path, data: bytes) -> None:
    try:
        directory = open_directory(path.parent)
        try:
            replace_private(directory, path.name, data)
        finally:
            os.close(directory)
    except (OSError, UntrustedError) as error:
        raise FleetError(f"{path}: {error}") from error
