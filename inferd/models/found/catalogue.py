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
    """Find all models of a program, where this user may read them.

    Raises:
        TooManyFilesError: there are more files than any cache has.
        PermissionError: there are none but perhaps where this user may not read.
        OSError: a directory cannot be read for another reason.
    """
    has_found, refusal = False, None
    for directory in PROGRAMS[program].directories(environ, home):
        try:
            for model in PROGRAMS[program].find(directory):
                has_found = True
                yield model
        except PermissionError as error:
            refusal = error
    if refusal is not None and not has_found:
        raise refusal
