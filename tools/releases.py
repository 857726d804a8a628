"""Installed versions, side by side: the current one, and the previous one.

======================  =============================================================
below `/opt/inferd`     content
======================  =============================================================
`releases/NAME`         a whole version; never changed once it is in use
`current`               a link to the version in use, which the units start
`previous`              a link to the version before
`models/SHA256/NAME`    models of versions that did not have them in the store
======================  =============================================================

All of it belongs to root. A version is built under its final name, because its programs
contain that path; nothing uses it before `current` points to it.
"""

import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from inferd.trusted_path import UntrustedError, open_directory
from tools.trusted import replace_link

RELEASES: Final = "releases"
CURRENT: Final = "current"
PREVIOUS: Final = "previous"
MODELS: Final = "models"
LISTED: Final = "share/SHA256SUMS"
"""File with the digests of all other files of a release, in the format of `sha256sum`."""
MODELS_LISTED: Final = "share/models"
"""File of older releases with their models below the prefix, one SHA-256 per line."""
STORED_LISTED: Final = "share/stored-models"
"""File with the models that came into the machine's store with a release, as above."""
STORE: Final = Path("/var/lib/inferd/models")
"""The machine's store; what is removed there by `inferd model remove` may be missing."""
NUMBER: Final = re.compile(r"-(\d+)$")
OLDER_LAYOUT: Final = ("bin", "include", "lib", "lib64", "pyvenv.cfg", "share")
"""Directory of the version before this layout, below the same prefix."""


class Releases:
    """The installed versions below a directory.

    Args:
        prefix: the directory; it is created, and only root may change it.

    Raises:
        UntrustedError: another user may change it, or a directory above it.
    """

    def __init__(self, prefix: Path) -> None:
        self.prefix = prefix
        for directory in (prefix / RELEASES, prefix / MODELS):
            os.close(open_directory(directory, makes=True))

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the installation while inside.

        Raises:
            UntrustedError: another process has the lock.
        """
        directory = open_directory(self.prefix)
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError as error:
            raise UntrustedError(f"{self.prefix} is being changed already") from error
        finally:
            os.close(directory)

    def stage(self, version: str) -> Path:
        """Make the directory of a new release."""
        names = (path.name for path in (self.prefix / RELEASES).iterdir())
        numbers = [int(match[1]) for name in names if (match := NUMBER.search(name))]
        release = self.prefix / RELEASES / f"{version}-{max(numbers, default=0) + 1}"
        release.mkdir(mode=0o755)
        return release

    def named(self, link: str) -> Path | None:
        """Return the release that a link points to, if there is one."""
        with suppress(OSError):
            target = self.prefix / (self.prefix / link).readlink()
            return target if target.is_dir() else None
        return None

    def switch(self, release: Path) -> None:
        """Make a release the current one, and the one before the previous one."""
        in_use = self.named(CURRENT)
        if in_use == release:
            return
        self.keep(in_use)
        self._link(CURRENT, release)

    def keep(self, release: Path | None) -> None:
        """Set the previous release, or none."""
        if release is None:
            (self.prefix / PREVIOUS).unlink(missing_ok=True)
        else:
            self._link(PREVIOUS, release)

    def _link(self, name: str, release: Path) -> None:
        directory = open_directory(self.prefix)
        try:
            replace_link(release.relative_to(self.prefix), directory, name)
        finally:
            os.close(directory)

    def prune(self) -> None:
        """Remove releases and models that are neither current nor previous."""
        kept = [each for each in map(self.named, (CURRENT, PREVIOUS)) if each]
        for release in (self.prefix / RELEASES).iterdir():
            if release not in kept:
                shutil.rmtree(release)
        models = {model for release in kept for model in models_of(release)}
        for directory in (self.prefix / MODELS).iterdir():
            if directory.name not in models:
                shutil.rmtree(directory)
        for name in OLDER_LAYOUT:
            remove(self.prefix / name)


def remove(path: Path) -> None:
    """Remove a file, a link or a directory of ours."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def models_of(release: Path) -> list[str]:
    """List the models that a release needs below the prefix, by SHA-256."""
    return _listed(release / MODELS_LISTED)


def _listed(file: Path) -> list[str]:
    return file.read_text().split() if file.is_file() else []


def files_of(release: Path) -> Iterator[str]:
    """List the files of a release, without links and the list itself."""
    for path in sorted(release.rglob("*")):
        name = path.relative_to(release).as_posix()
        if path.is_file() and not path.is_symlink() and name != LISTED:
            yield name


def seal(release: Path) -> None:
    """Write the digests of all files of a release."""
    lines = [f"{digest(release / name)}  {name}\n" for name in files_of(release)]
    (release / LISTED).write_text("".join(lines))


def digest(path: Path) -> str:
    """Compute a file's SHA-256."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def differences(release: Path) -> Iterator[str]:
    """Report files of a release that differ from its digests, models included."""
    lines = (release / LISTED).read_text().splitlines()
    listed = {name: sha256 for sha256, name in (line.split("  ", 1) for line in lines)}
    present = set(files_of(release))
    for name in sorted(present | listed.keys()):
        if name not in present:
            yield f"{name} is missing"
        elif name not in listed:
            yield f"{name} is not of this version"
        elif digest(release / name) != listed[name]:
            yield f"{name} was changed"
    for model in models_of(release):
        yield from _model_differences(release.parent.parent / MODELS / model)
    for model in _listed(release / STORED_LISTED):
        path = STORE / "blobs" / model
        if path.is_file() and digest(path) != model:
            yield f"{path} was changed"


def _model_differences(directory: Path) -> Iterator[str]:
    files = list(directory.iterdir()) if directory.is_dir() else []
    if not files:
        yield f"the model {directory.name} is missing"
    for file in files:
        if digest(file) != directory.name:
            yield f"{file} was changed"
