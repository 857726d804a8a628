"""Which files of a repository make a model."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from inferd.models.found.model import (
    MODEL_SUFFIX,
    FileGroup,
    FoundFile,
    fitting_name,
    group_files,
)
from inferd.models.pull.errors import PullError
from inferd.models.pull.messages import HubFile
from inferd.models.pull.source import HubSource
from inferd.models.store.manifest import Role

USUAL_QUANT: Final = "Q4_K_M"
"""Chosen where a repository has many: others' programs choose it as well."""
_PROJECTORS: Final = ("f16", "bf16", "q8_0", "f32")
"""Of several projectors the first: they are small, and lose much by less."""
_SHOWN: Final = 12
"""Choices that an error lists."""


@dataclass(frozen=True, slots=True)
class ChosenFile:
    """A file of a model."""

    file: HubFile
    role: Role


@dataclass(frozen=True, slots=True)
class Choice:
    """A model of a repository."""

    name: str
    """That the model gets without another."""
    files: tuple[ChosenFile, ...]
    """The parts of a split file in order, and then the projector."""


def choose(
    source: HubSource, files: Iterable[HubFile], *, with_projector: bool = True
) -> Choice:
    """Choose the files of a model.

    Raises:
        PullError: there is none that fits, more than one, or one that is not complete.
    """
    by_path = {file.path: file for file in files}
    groups = _groups(by_path)
    n_gguf = sum(group.files[0].path.suffix == MODEL_SUFFIX for _, group in groups)
    quant = source.quant or (USUAL_QUANT if n_gguf > 1 else "")
    folder, group = (
        _named(source, groups) if source.file else _fitting(source, groups, quant)
    )
    if group.missing:
        raise PullError(f"{source.repository} is not complete: {group.missing}")
    chosen = [
        ChosenFile(by_path[file.path.as_posix()], "model")
        for file in group.files
        if file.role == "model"
    ]
    if with_projector and (projector := _projector(by_path, folder)):
        chosen.append(ChosenFile(projector, "projector"))
    for each in chosen:
        if not each.file.sha256:
            raise PullError(f"the hub states no SHA-256 of {each.file.path}")
    owner, repository = source.repository.split("/")
    variant = group.stem if source.file or not quant else quant
    name = fitting_name(owner, repository, variant=variant)
    return Choice(name, tuple(chosen))


_Groups = list[tuple[Path, FileGroup]]


def _groups(by_path: dict[str, HubFile]) -> _Groups:
    """Group the files by model, folder by folder."""
    folders: dict[Path, list[Path]] = defaultdict(list)
    for path in map(Path, sorted(by_path)):
        folders[path.parent].append(path)
    return [
        (folder, group)
        for folder, paths in sorted(folders.items())
        for group in (*group_files(paths), *_single(paths))
    ]


def _single(paths: list[Path]) -> Iterator[FileGroup]:
    """Yield files of other formats, each of which is a model of its own."""
    for path in paths:
        if path.suffix != MODEL_SUFFIX:
            yield FileGroup(path.stem, (FoundFile(path, path.name),), "")


def _named(source: HubSource, groups: _Groups) -> tuple[Path, FileGroup]:
    """Return the group that has the file of a source."""
    path = Path(source.file)
    for folder, group in groups:
        if any(file.path == path and file.role == "model" for file in group.files):
            return folder, group
    raise _none(source, f"no model file {source.file}", groups)


def _fitting(source: HubSource, groups: _Groups, quant: str) -> tuple[Path, FileGroup]:
    """Return the only group, or the only one of a quantisation."""
    fitting = [
        (folder, group)
        for folder, group in groups
        if group.files[0].path.suffix == MODEL_SUFFIX
        and _has_quant(folder, group, quant)
    ]
    if len(fitting) == 1:
        return fitting[0]
    what = f"of {quant}" if quant else "in GGUF files"
    n_models = "several models" if fitting else "no model"
    raise _none(source, f"{n_models} {what}", fitting or groups)


def _has_quant(folder: Path, group: FileGroup, quant: str) -> bool:
    """Tell whether a quantisation is a word of a file's name, or of its folder's."""
    words = rf"(?:^|[-._/]){re.escape(quant)}(?:$|[-._/])"
    text = f"{folder.as_posix()}/{group.stem}"
    return not quant or re.search(words, text, re.IGNORECASE) is not None


def _none(source: HubSource, what: str, groups: _Groups) -> PullError:
    """Describe what a repository has instead."""
    paths = [group.files[0].path.as_posix() for _, group in groups]
    shown = ", ".join(paths[:_SHOWN]) + (", …" if len(paths) > _SHOWN else "")
    if not paths:
        return PullError(
            f"{source.repository} has {what}",
            "look for a repository with GGUF files; its name often ends in -GGUF",
        )
    revision = f"@{source.revision}" if source.revision else ""
    return PullError(
        f"{source.repository} has {what}; it has: {shown}",
        f"inferd model pull hf:{source.repository}/{paths[0]}{revision}",
    )


def _projector(by_path: dict[str, HubFile], folder: Path) -> HubFile | None:
    """Return the projector that goes with the models of a folder, or of the top."""
    for place in (folder, Path()):
        found = [
            file
            for path, file in sorted(by_path.items())
            if Path(path).parent == place
            and path.endswith(MODEL_SUFFIX)
            and "mmproj" in Path(path).name.lower()
        ]
        if found:
            return min(found, key=_rank)
    return None


def _rank(file: HubFile) -> int:
    words = re.split(r"[-._]", Path(file.path).stem.lower().replace("q8_0", "q80"))
    ranks = [
        rank for rank, kind in enumerate(_PROJECTORS) if kind.replace("_", "") in words
    ]
    return min(ranks, default=len(_PROJECTORS))
