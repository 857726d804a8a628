"""A whisper model's weights and vocabulary."""

import ctypes
from typing import Final

from inferd.worker.backend import LoadError
from inferd.worker.whisper.library import load_library
from inferd.worker.whisper.model.file import WhisperFile

ENGLISH: Final = "en"


class WhisperModel:
    """A loaded model; it stays loaded until the process ends.

    Any thread may call its methods; threads that compute with it must take turns.

    Args:
        file: of the model.

    Raises:
        LoadError: the library rejected the file, and its log on stderr says why; or the
            file changed during the load.
    """

    def __init__(self, file: WhisperFile) -> None:
        self.library: Final = load_library()
        self.header: Final = file.header
        [path] = file.library_paths
        params = self.library.whisper_context_default_params()
        params.use_gpu = False
        load = self.library.whisper_init_from_file_with_params_no_state
        self.handle: int | None = load(path, params)
        if not self.handle:
            raise LoadError.of_file(file.path, "whisper.cpp cannot load it")
        file.refuse_if_changed()  # missing bytes would have been read as zeros
        self.first_special: int = self.library.whisper_token_eot(self.handle)
        """The end-of-text token: all tokens below it are text."""
        self.languages: Final = self._languages()
        """Codes of the languages that the model knows, in the library's order."""

    def tokenize(self, text: str) -> tuple[int, ...]:
        """Tokenise a short text."""
        data = text.replace("\0", " ").encode()
        tokens = (ctypes.c_int32 * (len(data) + 1))()
        n_tokens = self.library.whisper_tokenize(self.handle, data, tokens, len(tokens))
        return tuple(tokens[:n_tokens])

    def _languages(self) -> tuple[str, ...]:
        n_languages = min(
            self.header.n_languages, self.library.whisper_lang_max_id() + 1
        )
        return tuple(
            self.library.whisper_lang_str(number).decode()
            for number in range(n_languages)
        )
