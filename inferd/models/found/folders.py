"""Models that programs keep as plain files in folders: LM Studio, llama.cpp."""

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

LM_STUDIO: Final = "lmstudio"
LLAMA_CPP: Final = "llamacpp"


def lm_studio_directories(_: Mapping[str, str], home: Path) -> list[Path]:
    """List where LM Studio keeps its models, today and in earlier versions."""
    return [home / ".lmstudio" / "models", home / ".cache" / "lm-studio" / "models"]


def llama_cpp_directories(environ: Mapping[str, str], home: Path) -> list[Path]:
    """List where llama.cpp's programs keep what they download."""
    if given := environ.get("LLAMA_CACHE"):
        return [Path(given)]
    cache = Path(environ.get("XDG_CACHE_HOME") or home / ".cache")
    return [cache / "llama.cpp"]


def find_lm_studio(directory: Path) -> Iterator[FoundModel]:
    """Find LM Studio's models.

    Raises:
        TooManyFilesError: there are more files than any cache has.
        OSError: a directory cannot be read.
    """
    return _find(LM_STUDIO, directory)


def find_llama_cpp(directory: Path) -> Iterator[FoundModel]:
    """Find the models that llama.cpp's programs downloaded.

    Raises:
        TooManyFilesError: there are more files than any cache has.
        OSError: a directory cannot be read.
    """
    return _find(LLAMA_CPP, directory)


def _find(program: str, directory: Path) -> Iterator[FoundModel]:
    folders: dict[Path, list[Path]] = defaultdict(list)
    for path in list_files(directory):
        folders[path.parent].append(path)
    for folder, paths in sorted(folders.items()):
        parts = folder.relative_to(directory).parts[:2]
        for group in group_files(paths):
            yield FoundModel(
                program=program,
                name=fitting_name(*(parts or (program,)), variant=group.stem),
                source=str(group.files[0].path),
                revision="",
                files=group.files,
                missing=group.missing,
            )
