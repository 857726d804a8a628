"""Have llama.cpp load a model's files, or as much of them as is wanted."""

import ctypes
from collections.abc import Callable
from typing import Final, Literal, NamedTuple

from inferd.worker.backend import LoadError
from inferd.worker.llama.files import ModelFile
from inferd.worker.llama.gguf import Header
from inferd.worker.llama.library import llama, load_model

Extent = Literal["whole", "dry", "wordless"]
"""How much is loaded: all of it; not its weights, so that it can tell what it takes, no
more; nor its vocabulary, which takes most of the time."""

_N_OVERRIDES: Final = 3


class Opened(NamedTuple):
    """A model that is loaded."""

    handle: int
    n_left_texts: int
    """Tokens of its vocabulary, and rules by which they are merged, that were left."""
    progress: object
    """What the library calls; kept from the collector."""


def open_model(
    file: ModelFile, n_gpu_layers: int, alive: Callable[[], None], extent: Extent
) -> Opened:
    """Load it.

    Raises:
        LoadError: the library refused the file; its log, on stderr, says why.
    """
    params = llama.llama_model_default_params()
    params.n_gpu_layers = n_gpu_layers
    if extent != "whole":
        params.no_alloc = True
        params.load_mode = llama.LLAMA_LOAD_MODE_NONE

    def go_on(_progress: float, _: object) -> bool:
        alive()
        return True

    progress = llama.llama_progress_callback(go_on)
    params.progress_callback = progress
    words = _no_words(file.header) if extent == "wordless" else None
    params.kv_overrides = words
    handle = load_model(file.library_paths, params)
    if words and not handle:  # an architecture that reads them for its shape
        words = params.kv_overrides = None
        handle = load_model(file.library_paths, params)
    if not handle:
        raise LoadError.of_file(file.path, "llama.cpp cannot load it")
    return Opened(handle, file.header.n_texts if words else 0, progress)


def _no_words(header: Header) -> "ctypes.Array[ctypes.Structure] | None":
    """Say that a file has no tokeniser, and how many tokens there are all the same."""
    if not header.n_tokens or not header.architecture:
        return None
    made: ctypes.Array[ctypes.Structure] = (
        llama.llama_model_kv_override * _N_OVERRIDES  # the last one ends them
    )()
    tokenizer, size, _ = made
    tokenizer.tag = llama.LLAMA_KV_OVERRIDE_TYPE_STR
    tokenizer.key = b"tokenizer.ggml.model"
    tokenizer.value.val_str = b"none"
    size.tag = llama.LLAMA_KV_OVERRIDE_TYPE_INT
    size.key = header.architecture + b".vocab_size"
    size.value.val_i64 = header.n_tokens
    return made
