"""Load a model's files with llama.cpp: in full, or without weights or vocabulary."""

import ctypes
from collections.abc import Callable
from typing import Final, Literal, NamedTuple

from inferd.config.kinds.llamacpp import LlamaCppSettings, n_gpu_layers
from inferd.models.gguf_header.header import GgufHeader
from inferd.worker.backend import LoadError
from inferd.worker.llama.gguf.files import ModelFile
from inferd.worker.llama.library.binding import llama, load_model

LoadExtent = Literal["full", "no_weights", "no_vocabulary"]
"""The parts to load: everything; no weights, to predict its memory; or no weights and no
vocabulary, which takes most of the load time."""

_N_OVERRIDES: Final = 3


class OpenedModel(NamedTuple):
    """A loaded model."""

    handle: int
    n_skipped_texts: int
    """Tokens and merge rules of the vocabulary that were not loaded."""
    kept: object
    """What the library refers to; must be kept alive."""


def open_model(
    file: ModelFile,
    settings: LlamaCppSettings,
    alive: Callable[[], None],
    extent: LoadExtent,
) -> OpenedModel:
    """Load a model's files.

    Args:
        file: a GGUF file.
        settings: where its layers go.
        alive: called regularly while it loads, as a sign of life.
        extent: the parts to load.

    Raises:
        LoadError: the library refused the file; its log, on stderr, says why.
    """
    params = llama.llama_model_default_params()
    kept = _place_layers(params, settings)
    if extent != "full":
        params.no_alloc = True
        params.load_mode = llama.LLAMA_LOAD_MODE_NONE

    def go_on(_progress: float, _: object) -> bool:
        alive()
        return True

    progress = llama.llama_progress_callback(go_on)
    params.progress_callback = progress
    overrides = _without_vocabulary(file.header) if extent == "no_vocabulary" else None
    params.kv_overrides = overrides
    handle = load_model(file.library_paths, params)
    if overrides and not handle:  # some derive tensor shapes from the vocabulary
        overrides = params.kv_overrides = None
        handle = load_model(file.library_paths, params)
    if not handle:
        raise LoadError.of_file(file.path, "llama.cpp cannot load it")
    n_skipped = file.header.n_texts if overrides else 0
    return OpenedModel(handle, n_skipped, (progress, kept))


def _place_layers(params: ctypes.Structure, settings: LlamaCppSettings) -> object:
    """Set where layers go; return what must be kept alive while the model is loaded."""
    params.n_gpu_layers = n_gpu_layers(settings)
    if not params.n_gpu_layers:  # else large batches would be computed on a device
        none = (ctypes.c_void_p * 1)()  # the list ends in a null pointer
        params.devices = ctypes.addressof(none)
        return none
    if settings.main_gpu is not None:
        params.split_mode = llama.LLAMA_SPLIT_MODE_NONE
        params.main_gpu = settings.main_gpu
    if settings.tensor_split is None:
        return None
    parts = (ctypes.c_float * llama.llama_max_devices())(*settings.tensor_split)
    params.tensor_split = parts
    return parts


def _without_vocabulary(header: GgufHeader) -> "ctypes.Array[ctypes.Structure] | None":
    """Return overrides that disable the tokeniser and set the size of the vocabulary."""
    if not header.n_tokens or not header.architecture:
        return None
    overrides: ctypes.Array[ctypes.Structure] = (
        llama.llama_model_kv_override * _N_OVERRIDES  # the last one marks the end
    )()
    tokenizer, size, _ = overrides
    tokenizer.tag = llama.LLAMA_KV_OVERRIDE_TYPE_STR
    tokenizer.key = b"tokenizer.ggml.model"
    tokenizer.value.val_str = b"none"
    size.tag = llama.LLAMA_KV_OVERRIDE_TYPE_INT
    size.key = header.architecture + b".vocab_size"
    size.value.val_i64 = header.n_tokens
    return overrides
