"""A whisper model's weights and vocabulary."""

import ctypes
from typing import Final

from inferd.worker.backend import LoadError
from inferd.worker.whisper.files import SpeechFile
from inferd.worker.whisper.library import load_library

ENGLISH: Final = "en"


class Model:
    """A model that is loaded; as long as the process lives.

    Any thread may ask it; those that compute with it take turns.

    Args:
        file: that it is in.

    Raises:
        LoadError: the library refused it, and its log, on stderr, says why; or the file
            changed meanwhile.
    """

    def __init__(self, file: SpeechFile) -> None:
        self.library: Final = load_library()
        self.header: Final = file.header
        [path] = file.library_paths
        params = self.library.whisper_context_default_params()
        params.use_gpu = False
        load = self.library.whisper_init_from_file_with_params_no_state
        self.handle: int | None = load(path, params)
        if not self.handle:
            raise LoadError.of_file(file.path, "whisper.cpp cannot load it")
        file.refuse_changed()  # what is missing now would be taken for zeros
        self.first_special: int = self.library.whisper_token_eot(self.handle)
        """The token that ends a text: those before it are text."""
        self.languages: Final = self._languages()
        """Codes of those that it knows, in the library's order."""

    def tokenize(self, text: str) -> tuple[int, ...]:
        """Give the tokens of a short text."""
        data = text.replace("\0", " ").encode()
        room = (ctypes.c_int32 * (len(data) + 1))()
        n_tokens = self.library.whisper_tokenize(self.handle, data, room, len(room))
        return tuple(room[:n_tokens])

    def _languages(self) -> tuple[str, ...]:
        n_languages = min(
            self.header.n_languages, self.library.whisper_lang_max_id() + 1
        )
        return tuple(
            self.library.whisper_lang_str(number).decode()
            for number in range(n_languages)
        )
