"""The programs whose models are found."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from inferd.models.found import folders, huggingface, ollama
from inferd.models.found.model import FoundModel


class Program(NamedTuple):
    """How the models of a program are found."""

    directories: Callable[[Mapping[str, str], Path], list[Path]]
    """Lists where they may be, by the environment and the home directory."""
    find: Callable[[Path], Iterator[FoundModel]]
    """Finds them in one of these directories."""


PROGRAMS: Final = {
    ollama.PROGRAM: Program(ollama.directories, ollama.find),
    huggingface.PROGRAM: Program(huggingface.directories, huggingface.find),
    folders.LM_STUDIO: Program(folders.lm_studio_directories, folders.find_lm_studio),
    folders.LLAMA_CPP: Program(folders.llama_cpp_directories, folders.find_llama_cpp),
}


def find_models(
    program: str, environ: Mapping[str, str], home: Path
) -> Iterator[FoundModel]:
    """Find all models of a program.

    Raises:
        TooManyFilesError: there are more files than any cache has.
        OSError: a directory cannot be read.
    """
    for directory in PROGRAMS[program].directories(environ, home):
        yield from PROGRAMS[program].find(directory)
