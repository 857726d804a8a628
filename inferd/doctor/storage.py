"""Checks of what is written: the log, the model store, and the space that is left."""

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from inferd.doctor.backend import store_command
from inferd.doctor.check import Finding, failed, first, ok, warning
from inferd.limits.models import STORE_FREE_BYTES
from inferd.memory.plan import mib
from inferd.models.store.directory import StoreDirectory, StoreError
from inferd.models.store.manifest import ManifestError
from inferd.models.store.store import ModelNotInStoreError, ModelStore
from inferd.paths import SYSTEM_MODELS
from inferd.trusted_path import is_link_of_others

MIN_FREE_BYTES: Final = STORE_FREE_BYTES
"""Bytes that should be free where the daemon writes: the log has four files of 16 MiB."""


class LogPlace(NamedTuple):
    """Where the log file is."""

    directory: Path
    owner: int
    """The uid of the daemon."""
    can_be_made: bool
    """Whether the directory above lets the daemon make it."""


def check_log_directory(place: LogPlace | None) -> Finding:
    """Check that the daemon can write its log; without a file stderr has it."""
    return first(_log_findings(place))


def _log_findings(place: LogPlace | None) -> Iterator[Finding]:
    if place is None:
        yield ok("no log file is configured; stderr has the log")
        return
    directory = place.directory
    if not directory.exists():
        if place.can_be_made:
            yield ok(f"{directory} does not exist yet; the daemon makes it")
        yield warning(
            f"{directory} does not exist and cannot be made", f"mkdir -p {directory}"
        )
    if is_link_of_others(link := directory.lstat()):
        yield warning(
            f"{directory} is a link of uid {link.st_uid}, so there is no log file",
            f"ls -ld {directory}",
        )
        return
    info = directory.stat()
    if not stat.S_ISDIR(info.st_mode):
        yield warning(
            f"{directory} is not a directory, so there is no log file",
            f"mv {directory} {directory}.old",
        )
    if info.st_mode & stat.S_IWOTH:
        yield warning(
            f"{directory} may be written to by others, so there is no log file",
            f"{_as_owner(info)}chmod o-w {directory}",
        )
    if place.owner not in (0, info.st_uid):
        yield warning(
            f"{directory} belongs to uid {info.st_uid}, so uid {place.owner} cannot "
            "write the log",
            f"sudo chown --no-dereference {place.owner} {directory}",
        )
    yield ok(f"{directory}, mode {stat.S_IMODE(info.st_mode):04o}")


def _as_owner(info: os.stat_result) -> str:
    """Return what has a command follow no links but those that its owner may follow."""
    is_another_s = os.geteuid() == 0 != info.st_uid
    return f"sudo -u '#{info.st_uid}' " if is_another_s else ""


class Space(NamedTuple):
    """Space of a file system."""

    free: int
    """Bytes that users other than root may still write."""
    total: int


def space_of(path: Path) -> Space:
    """Ask for the space of the file system of a path, or of what exists above it."""
    while not path.exists() and path != path.parent:
        path = path.parent
    found = os.statvfs(path)
    return Space(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)


def check_disk(spaces: Mapping[Path, Space], store: Path, n_unused: int) -> Finding:
    """Check that there is space where the daemon and the commands write.

    Args:
        spaces: by the directories that are written to.
        store: the model store, one of them.
        n_unused: bytes in the store that nothing uses.
    """
    short = [
        path
        for path, space in spaces.items()
        if space.free < min(MIN_FREE_BYTES, space.total // 2)
    ]
    if not short:
        least = min(space.free for space in spaces.values())
        return ok(f"at least {mib(least)} free where inferd writes")
    path = short[0]
    text = f"{mib(spaces[path].free)} free at {path}; {mib(MIN_FREE_BYTES)} should be"
    if path == store and n_unused:
        return warning(
            f"{text}; {mib(n_unused)} of it are files that no model uses",
            "sudo inferd model prune --system"
            if store == SYSTEM_MODELS
            else "inferd model prune",
        )
    return warning(text, f"du -xh --max-depth=1 {_mount_of(path)} | sort -h | tail")


def _mount_of(path: Path) -> Path:
    while not path.exists() or not path.is_mount():
        path = path.parent
    return path


def unused_bytes(store: Path) -> int:
    """Return the bytes of a store that nothing uses; 0 if it cannot be read."""
    try:
        directory = StoreDirectory.open(store, makes=False)
        if directory is None:
            return 0
        with directory:
            return sum(each.n_bytes for each in ModelStore(directory).unused())
    except (StoreError, ManifestError, OSError):
        return 0


def check_store(path: Path) -> Finding:
    """Check that the model store can be read, and that its models have their files."""
    try:
        directory = StoreDirectory.open(path, makes=False)
        if directory is None:
            return ok(f"there is none at {path}")
        with directory:
            return _check_models(ModelStore(directory), path)
    except StoreError as error:
        return failed(str(error), f"ls -ld {path}")


def _check_models(store: ModelStore, path: Path) -> Finding:
    names = store.names()
    for name in names:
        remove = store_command("remove", name, path)
        try:
            model = store.model(name)
        except ModelNotInStoreError:
            continue  # removed meanwhile
        except ManifestError as error:
            return warning(str(error), f"{remove}; then bring it again")
        if not all(map(store.has_blob, model.files)):
            return warning(
                f"files of {name} are missing or not complete",
                f"{remove}; then bring it again from {model.source}",
            )
    return ok(f"{len(names)} models in {path}")
