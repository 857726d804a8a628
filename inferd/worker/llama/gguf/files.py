"""Open a GGUF model's files once, and check them before the library sees them."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from inferd.config.kinds.llamacpp import LlamaCppSettings
from inferd.models.file_error import ModelFileError, WrongFormatError
from inferd.models.gguf_header.header import MAGIC, GgufHeader, read_header
from inferd.models.gguf_header.parts import other_parts, part_fault
from inferd.worker.backend import LoadError
from inferd.worker.model_file import (
    MODEL_KIND,
    OpenedFile,
    describe_format_error,
)

_PROJECTOR: Final = b"clip"


class ModelFile(OpenedFile):
    """A model's GGUF file, or all parts of a split one, open for reading.

    Args:
        path: of the file, or of its first part.
        kind: its name in messages.
        others: paths of the other parts in order; by default they are found by the name of
            the first, if its header says that there are any.

    Raises:
        LoadError: a file is missing, cannot be read, or is not a GGUF file that can be
            loaded, or they are not the parts of one model.

    Ownership:
        Holds a descriptor for each file as long as it lives.
    """

    def __init__(
        self, path: Path, kind: str = MODEL_KIND, others: Sequence[Path] = ()
    ) -> None:
        super().__init__(path, kind)
        self.header = self._add(path)
        headers = [self.header, *map(self._add, others or self._other_parts())]
        if fault := part_fault(headers):
            raise self._broken(self.paths[fault.part], fault.text)

    def _add(self, path: Path) -> GgufHeader:
        """Open a file, and check its header."""
        fd = self._open(path)
        try:
            with open(fd, "rb", buffering=0, closefd=False) as file:
                return read_header(file, os.fstat(fd).st_size)
        except WrongFormatError as error:
            fault = describe_format_error(MAGIC, error.magic)
            raise self._broken(path, fault) from error
        except ModelFileError as error:
            raise self._broken(path, str(error)) from error
        except OSError as error:
            fault = str(error.strerror)
            raise LoadError.of_file(path, fault, kind=self.kind) from error

    def _broken(self, path: Path, fault: str) -> LoadError:
        return LoadError.of_file(path, fault, kind=self.kind, is_broken=True)

    def _other_parts(self) -> list[Path]:
        """Return the paths of a split model's other parts."""
        try:
            return other_parts(self.path, self.header)
        except ModelFileError as error:
            raise self._broken(self.path, str(error)) from error


class ModelFiles(NamedTuple):
    """All files of a backend."""

    model: ModelFile
    draft: ModelFile | None = None
    projector: ModelFile | None = None

    @property
    def fds(self) -> list[int]:
        """Their descriptors."""
        return [fd for each in self if each is not None for fd in each.fds]


def open_files(settings: LlamaCppSettings) -> ModelFiles:
    """Open the files that the settings name.

    Raises:
        LoadError: as ``ModelFile`` does, or the ``mmproj`` file is not a projector.
    """
    draft, projector = settings.draft_model, settings.mmproj
    return ModelFiles(
        ModelFile(
            Path(settings.model), others=[Path(each) for each in settings.model_parts]
        ),
        ModelFile(Path(draft)) if draft else None,
        _open_projector(Path(projector)) if projector else None,
    )


def _open_projector(path: Path) -> ModelFile:
    file = ModelFile(path, "mmproj file")
    if file.header.architecture != _PROJECTOR:
        found = file.header.architecture.decode("utf-8", "replace")
        raise file.load_error(
            f"its architecture is {found!r}; that of a projector is 'clip'",
            is_broken=True,
        )
    return file
