"""Open a whisper model's file once, and check it before the library sees it."""

import os
from pathlib import Path

from inferd.config import WhisperCppSettings
from inferd.worker.backend import LoadError
from inferd.worker.files import OpenedFile
from inferd.worker.whisper.header import HeaderError, read_header


class SpeechFile(OpenedFile):
    """A model's file, open for reading.

    Args:
        path: of the file.

    Raises:
        LoadError: it is missing, cannot be read, or is no model that could be loaded.

    Ownership:
        Holds its descriptor as long as it lives.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        fd = self._open(path)
        try:
            with open(fd, "rb", buffering=0, closefd=False) as file:
                self.header = read_header(file, os.fstat(fd).st_size)
        except HeaderError as error:
            raise LoadError.of_file(path, str(error)) from error
        except OSError as error:
            raise LoadError.of_file(path, str(error.strerror)) from error
        self._note_opened()


def open_file(settings: WhisperCppSettings) -> SpeechFile:
    """Open the file that the settings name.

    Raises:
        LoadError: as ``SpeechFile`` does.
    """
    return SpeechFile(Path(settings.model))
