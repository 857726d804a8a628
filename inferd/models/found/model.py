"""A model that another program has."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from inferd.limits.models import FOUND_MAX_FILES
from inferd.models.store.manifest import Role

MODEL_SUFFIX: Final = ".gguf"
_PART: Final = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
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

    The parts of a split file are one model. A projector goes with every model of its
    directory.
    """
    parts: dict[str, dict[int, Path]] = defaultdict(dict)
    counts: dict[str, int] = {}
    projectors: list[FoundFile] = []
    for path in paths:
        if path.suffix != MODEL_SUFFIX:
            continue
        if "mmproj" in path.name.lower():
            projectors.append(FoundFile(path, path.name, "projector"))
            continue
        split = _PART.fullmatch(path.name)
        stem = split["stem"] if split else path.stem
        parts[stem][int(split["number"]) if split else 1] = path
        counts[stem] = max(counts.get(stem, 1), int(split["count"]) if split else 1)
    return [
        FileGroup(
            stem,
            (
                *(FoundFile(found[n], found[n].name) for n in sorted(found)),
                *projectors[:1],
            ),
            _missing(found, counts[stem]),
        )
        for stem, found in sorted(parts.items())
    ]


def _missing(found: dict[int, Path], count: int) -> str:
    lacking = sorted({*range(1, count + 1)} - {*found})
    return f"part {lacking[0]} of {count} is missing" if lacking else ""
