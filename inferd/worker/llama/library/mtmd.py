"""Load libmtmd, which encodes images and audio, and capture its log."""

import ctypes
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Final

from inferd.worker.backend import LoadError
from inferd.worker.llama.gguf.files import ModelFile
from inferd.worker.llama.library.binding import check_struct, llama

__all__ = [
    "MtmdLog",
    "captured_log",
    "context_params",
    "load_mtmd",
    "projector_load_error",
]

_DEBUG: Final = 1
_ERROR: Final = 4
"""``GGML_LOG_LEVEL_DEBUG`` and ``_ERROR``."""
_STDERR: Final = 2
_MISMATCH: Final = re.compile(r"text model \(n_embd = (\d+)\).*\(n_embd = (\d+)\)")
_LINE_CHARS: Final = 200


class MtmdLog:
    """Log callback of libmtmd: writes all lines to stderr while verbose, else only errors.

    The library's default logger would write lines for each image.
    """

    def __init__(self) -> None:
        self.is_verbose = False
        self.first_error = ""
        """First line of the first error; later errors are consequences of it."""
        self.callback = llama.llama_log_callback(self._note)
        """The C callback; the attribute keeps it alive."""

    def _note(self, level: int, text: bytes | None, _: object) -> None:
        said = text or b""
        if level == _ERROR and not self.first_error:
            lines = said.decode("utf-8", "replace").strip().splitlines()
            self.first_error = "".join(lines[:1])[:_LINE_CHARS]
        if level == _ERROR or (self.is_verbose and level != _DEBUG):
            os.write(_STDERR, said)

    def clear_error(self) -> None:
        """Reset ``first_error``."""
        self.first_error = ""


_LOG: Final = MtmdLog()


def load_mtmd() -> ModuleType:
    """Load the library, once per process.

    Raises:
        LoadError: this build lacks it, or its structs are not those of the binding.
    """
    try:
        mtmd = import_module("llama_cpp.mtmd_cpp")
    except (ImportError, OSError, RuntimeError) as error:
        raise LoadError(
            "this build of llama.cpp supports neither images nor audio; run: make setup",
            f"libmtmd does not load ({error}); run: make setup",
        ) from error
    check_struct("mtmd_context_params", "mtmd_context_params_default", mtmd)
    mtmd.mtmd_helper_log_set(_LOG.callback, None)
    return mtmd


@contextmanager
def captured_log() -> Iterator[MtmdLog]:
    """Log verbosely inside the block; yields the log, with its first error."""
    _LOG.clear_error()
    _LOG.is_verbose = True
    try:
        yield _LOG
    finally:
        _LOG.is_verbose = False


def context_params(
    mtmd: ModuleType, n_threads: int, *, uses_accelerator: bool
) -> ctypes.Structure:
    """Return the parameters for loading a projector."""
    params: ctypes.Structure = mtmd.mtmd_context_params_default()
    params.use_gpu = uses_accelerator
    params.print_timings = False
    params.n_threads = n_threads
    return params


def projector_load_error(file: ModelFile, log: MtmdLog) -> LoadError:
    """Explain why libmtmd did not load a file, with its own message if there is one."""
    why = log.first_error
    if sizes := _MISMATCH.search(why):
        fault = (
            f"its embeddings have {sizes[2]} dimensions, those of the model {sizes[1]}"
        )
        return file.load_error(fault, is_broken=True)
    fault = f"libmtmd cannot load it: {why}" if why else "libmtmd cannot load it"
    return file.load_error(fault)
