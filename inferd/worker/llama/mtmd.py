"""Reach libmtmd, which makes pictures and sound readable, and hear what it says."""

import ctypes
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Final

from inferd.worker.backend import LoadError
from inferd.worker.llama.files import ModelFile
from inferd.worker.llama.library import check_struct, llama

__all__ = ["Words", "heard", "load_mtmd", "parameters", "refusal"]

_DEBUG: Final = 1
_ERROR: Final = 4
"""``GGML_LOG_LEVEL_DEBUG`` and ``_ERROR``."""
_STDERR: Final = 2
_MISMATCH: Final = re.compile(r"text model \(n_embd = (\d+)\).*\(n_embd = (\d+)\)")
_LINE_CHARS: Final = 200


class Words:
    """What the library says: all of it on stderr while it is heard, then errors alone.

    It has a logger of its own, which would write lines for each picture.
    """

    def __init__(self) -> None:
        self.is_loud = False
        self.first_error = ""
        """The first line of the first error, in the library's words; the others follow."""
        self.callback = llama.llama_log_callback(self._note)
        """For the library; kept from the collector."""

    def _note(self, level: int, text: bytes | None, _: object) -> None:
        said = text or b""
        if level == _ERROR and not self.first_error:
            lines = said.decode("utf-8", "replace").strip().splitlines()
            self.first_error = "".join(lines[:1])[:_LINE_CHARS]
        if level == _ERROR or (self.is_loud and level != _DEBUG):
            os.write(_STDERR, said)

    def forget(self) -> None:
        """Take no earlier error for a later one."""
        self.first_error = ""


_WORDS: Final = Words()


def load_mtmd() -> ModuleType:
    """Load the library; it is loaded once.

    Raises:
        LoadError: this build has none, or its structs are not those of the binding.
    """
    try:
        mtmd = import_module("llama_cpp.mtmd_cpp")
    except (ImportError, OSError, RuntimeError) as error:
        raise LoadError(
            "this build of llama.cpp reads no pictures and no sound; run: make setup",
            f"libmtmd does not load ({error}); run: make setup",
        ) from error
    check_struct("mtmd_context_params", "mtmd_context_params_default", mtmd)
    mtmd.mtmd_helper_log_set(_WORDS.callback, None)
    return mtmd


@contextmanager
def heard() -> Iterator[Words]:
    """Have the library say all on stderr meanwhile; give what it says."""
    _WORDS.forget()
    _WORDS.is_loud = True
    try:
        yield _WORDS
    finally:
        _WORDS.is_loud = False


def parameters(
    mtmd: ModuleType, n_threads: int, *, uses_accelerator: bool
) -> ctypes.Structure:
    """Say how a projector is to be loaded."""
    params: ctypes.Structure = mtmd.mtmd_context_params_default()
    params.use_gpu = uses_accelerator
    params.print_timings = False
    params.n_threads = n_threads
    return params


def refusal(file: ModelFile, words: Words) -> LoadError:
    """Say why libmtmd did not load a file, in its own words where it has any."""
    why = words.first_error
    if sizes := _MISMATCH.search(why):
        fault = f"it makes vectors of {sizes[2]} numbers, the model reads {sizes[1]}"
    else:
        fault = f"libmtmd cannot load it: {why}" if why else "libmtmd cannot load it"
    return file.refusal(fault)
