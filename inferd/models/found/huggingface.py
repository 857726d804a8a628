"""Models in Hugging Face's cache."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from inferd.models.found.model import (
    FoundModel,
    fitting_name,
    group_files,
    list_files,
)

PROGRAM: Final = "huggingface"
_PREFIX: Final = "models--"


def directories(environ: Mapping[str, str], home: Path) -> list[Path]:
    """List where the library keeps its cache, as it finds it itself."""
    if given := environ.get("HF_HUB_CACHE"):
        return [Path(given)]
    if given := environ.get("HF_HOME"):
        return [Path(given) / "hub"]
    cache = Path(environ.get("XDG_CACHE_HOME") or home / ".cache")
    return [cache / "huggingface" / "hub"]


def find(directory: Path) -> Iterator[FoundModel]:
    """Find the GGUF models of a cache, in the newest snapshot of each repository.

    Raises:
        TooManyFilesError: there are more files than any cache has.
        OSError: a directory cannot be read.
    """
    repositories = sorted(directory.iterdir()) if directory.is_dir() else []
    for repository in repositories:
        if not repository.name.startswith(_PREFIX):
            continue
        name = repository.name.removeprefix(_PREFIX).replace("--", "/")
        if snapshot := _snapshot(repository):
            yield from _models(name, snapshot)


def _snapshot(repository: Path) -> Path | None:
    """Return the snapshot of the main branch, or else the newest."""
    main = repository / "refs" / "main"
    if main.is_file() and (commit := main.read_text().strip()).isalnum():
        current = repository / "snapshots" / commit
        if current.is_dir():
            return current
    snapshots = repository / "snapshots"
    found = [*snapshots.iterdir()] if snapshots.is_dir() else []
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def _models(repository: str, snapshot: Path) -> Iterator[FoundModel]:
    folders: dict[Path, list[Path]] = defaultdict(list)
    for path in list_files(snapshot):
        folders[path.parent].append(path)
    for folder, paths in folders.items():
        place = folder.relative_to(snapshot)
        for group in group_files(paths):
            yield FoundModel(
                program=PROGRAM,
                name=fitting_name(*repository.split("/"), variant=group.stem),
                source=f"hf:{repository}/{(place / group.files[0].name).as_posix()}",
                revision=snapshot.name,
                files=group.files,
                missing=group.missing,
            )
