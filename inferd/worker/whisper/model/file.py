"""Open a whisper model file once, and check it before the library reads it."""

import os
from pathlib import Path

from inferd.config.kinds.whispercpp import WhisperCppSettings
from inferd.models.file_error import ModelFileError, WrongFormatError
from inferd.models.whisper_header.header import MAGIC, read_header
from inferd.worker.backend import LoadError
from inferd.worker.model_file import OpenedFile, describe_format_error


class WhisperFile(OpenedFile):
    """A whisper model file, open for reading.

    Args:
        path: of the file.

    Raises:
        LoadError: it is missing, cannot be read, or is not a valid model.

    Ownership:
        Holds its file descriptor until it is garbage-collected.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        fd = self._open(path)
        try:
            with open(fd, "rb", buffering=0, closefd=False) as file:
                self.header = read_header(file, os.fstat(fd).st_size)
        except WrongFormatError as error:
            fault = describe_format_error(MAGIC, error.magic)
            raise LoadError.of_file(path, fault, is_broken=True) from error
        except ModelFileError as error:
            raise LoadError.of_file(path, str(error), is_broken=True) from error
        except OSError as error:
            raise LoadError.of_file(path, str(error.strerror)) from error


def open_file(settings: WhisperCppSettings) -> WhisperFile:
    """Open the configured model file.

    Raises:
        LoadError: as ``WhisperFile`` does.
    """
    return WhisperFile(Path(settings.model))
