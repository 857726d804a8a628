"""Installed versions, side by side: one is in use, and the one before is kept.

======================  =============================================================
below `/opt/inferd`     what it is
======================  =============================================================
`releases/NAME`         a whole version; never changed once it is in use
`current`               a link to the one in use, which is what the units start
`previous`              a link to the one before
`models/SHA256/NAME`    models, which versions share
======================  =============================================================

All of it is root's. A version is made in a directory of its own under its final name,
since its programs name it; it is nothing to anybody before `current` leads to it.
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

from tools.trusted import (
    UntrustedError,
    open_directory,
    open_file,
    replace_link,
    sha256_of,
)

RELEASES: Final = "releases"
CURRENT: Final = "current"
PREVIOUS: Final = "previous"
MODELS: Final = "models"
LISTED: Final = "share/SHA256SUMS"
"""The digests of all other files of a release, as `sha256sum` writes and reads them."""
MODELS_LISTED: Final = "share/models"
"""The models of a release, a SHA-256 a line."""
NUMBER: Final = re.compile(r"-(\d+)$")
OLDER_LAYOUT: Final = ("bin", "include", "lib", "lib64", "pyvenv.cfg", "share")
"""Where the version before this layout was, below the same directory."""


class Releases:
    """What is installed below a directory.

    Args:
        prefix: the directory; it is made, and nobody but root may change it.

    Raises:
        UntrustedError: another user may change it, or what lies above it.
    """

    def __init__(self, prefix: Path) -> None:
        self.prefix = prefix
        for directory in (prefix / RELEASES, prefix / MODELS):
            os.close(open_directory(directory, makes=True))

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep others from changing what is installed while inside.

        Raises:
            UntrustedError: somebody else does, just now.
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
        """Give the release that a link leads to, if it does."""
        with suppress(OSError):
            target = self.prefix / (self.prefix / link).readlink()
            return target if target.is_dir() else None
        return None

    def switch(self, release: Path) -> None:
        """Have a release in use, and keep the one before at hand."""
        in_use = self.named(CURRENT)
        if in_use == release:
            return
        self.keep(in_use)
        self._link(CURRENT, release)

    def keep(self, release: Path | None) -> None:
        """Have a release at hand to go back to, or none."""
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
        """Remove releases and models that are neither in use nor kept."""
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
    """List the models that a release needs, by SHA-256."""
    listed = release / MODELS_LISTED
    return listed.read_text().split() if listed.is_file() else []


def files_of(release: Path) -> Iterator[str]:
    """List the files of a release but the list itself; links among them are left out."""
    for path in sorted(release.rglob("*")):
        name = path.relative_to(release).as_posix()
        if path.is_file() and not path.is_symlink() and name != LISTED:
            yield name


def seal(release: Path) -> None:
    """Write the digests of all files of a release down."""
    lines = [f"{digest(release / name)}  {name}\n" for name in files_of(release)]
    (release / LISTED).write_text("".join(lines))


def digest(path: Path) -> str:
    """Take a file's SHA-256."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def differences(release: Path) -> Iterator[str]:
    """Say what of a release is not as it was sealed, models included; a line each."""
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


def _model_differences(directory: Path) -> Iterator[str]:
    files = list(directory.iterdir()) if directory.is_dir() else []
    if not files:
        yield f"the model {directory.name} is missing"
    for file in files:
        if digest(file) != directory.name:
            yield f"{file} was changed"


def has_model(directory: int, name: str, sha256: str) -> bool:
    """Tell whether an open directory has a model, as it should be."""
    try:
        file = open_file(name, directory)
    except (OSError, UntrustedError):
        return False
    try:
        return sha256_of(file) == sha256
    finally:
        os.close(file)
