"""A model that another program has."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from inferd.limits.models import FOUND_MAX_FILES
from inferd.models.gguf_header.parts import PartName, part_name
from inferd.models.store.manifest import Role

MODEL_SUFFIX: Final = ".gguf"
_UNFIT: Final = re.compile(r"[^A-Za-z0-9_.-]+|\.\.+")


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file of a found model."""

    path: Path
    name: str
    """As its source names it, without directories."""
    role: Role = "model"
    sha256: str | None = None
    """As the program that has it says; to be checked."""


_DEFAULT_TAG: Final = ":latest"
"""Tag that Ollama adds to names without one."""


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model that another program has."""

    program: str
    """Name of the program, as ``--from`` takes it."""
    name: str
    """That the model would have in the store."""
    source: str
    revision: str
    files: tuple[FoundFile, ...]
    """In order, if they are the parts of a split file."""
    license: str = ""
    missing: str = ""
    """Why it cannot be imported; empty if it can."""

    def has_name(self, name: str) -> bool:
        """Tell whether it is the model of a name, which may leave out ``:latest``."""
        return name in {self.name, self.name.removesuffix(_DEFAULT_TAG)}


class TooManyFilesError(Exception):
    """A directory has more files than any cache of models; the message is one line."""


def fitting_name(*parts: str, variant: str = "") -> str:
    """Make a model's name out of other programs' names for it."""
    fitted = [_UNFIT.sub("-", part).strip("-._") or "model" for part in parts]
    fitted_variant = _UNFIT.sub("-", variant).strip("-._")
    return "/".join(fitted) + (f":{fitted_variant}" if fitted_variant else "")


def list_files(directory: Path) -> Iterator[Path]:
    """List the files below a directory, sorted; none if it does not exist.

    Links to directories are not followed.

    Raises:
        TooManyFilesError: there are over ``FOUND_MAX_FILES``.
        OSError: a directory cannot be read.
    """
    n_files = 0
    todo = [directory] if directory.is_dir() else []
    while todo:
        entries = sorted(todo.pop().iterdir())
        n_files += len(entries)
        if n_files > FOUND_MAX_FILES:
            raise TooManyFilesError(f"{directory} has over {FOUND_MAX_FILES} files")
        yield from (path for path in entries if path.is_file())
        entries.reverse()  # the first is taken next
        todo += [path for path in entries if path.is_dir() and not path.is_symlink()]


@dataclass(frozen=True, slots=True)
class FileGroup:
    """The files of one model among those of a directory."""

    stem: str
    """Of the model file's name, without the number of its part."""
    files: tuple[FoundFile, ...]
    missing: str


def group_files(paths: Iterable[Path]) -> list[FileGroup]:
    """Group the GGUF files of a directory into models.

    The parts of a split file are one model. If a directory has it in other numbers of files
    as well, each is a model, and the number is in its stem. A projector goes with every
    model of its directory.
    """
    models: dict[tuple[str, int], dict[int, Path]] = defaultdict(dict)
    projectors: list[FoundFile] = []
    for path in paths:
        if path.suffix != MODEL_SUFFIX:
            continue
        if "mmproj" in path.name.lower():
            projectors.append(FoundFile(path, path.name, "projector"))
            continue
        stem, number, count = part_name(path.name) or PartName(path.stem, 1, 1)
        models[stem, count][number] = path
    n_models = Counter(stem for stem, _ in models)
    return [
        FileGroup(
            stem if 1 in {count, n_models[stem]} else f"{stem}-of-{count}",
            (
                *(FoundFile(found[n], found[n].name) for n in sorted(found)),
                *projectors[:1],
            ),
            _missing(found, count),
        )
        for (stem, count), found in sorted(models.items())
    ]


def _missing(found: dict[int, Path], count: int) -> str:
    lacking = next((n for n in range(1, count + 1) if n not in found), None)
    return "" if lacking is None else f"part {lacking} of {count} is missing"
