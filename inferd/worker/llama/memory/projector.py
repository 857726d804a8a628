"""Predict a projector's memory, without loading its weights.

libmtmd reports it only through its C++ API (``read_std_map``).
"""

import ctypes
from typing import Final, NamedTuple

from inferd.worker.llama.gguf.files import ModelFile
from inferd.worker.llama.library.mtmd import (
    captured_log,
    context_params,
    load_mtmd,
    projector_load_error,
)
from inferd.worker.llama.memory.std_map import is_cpu, read_std_map

__all__ = ["ProjectorMemory", "projector_bytes"]

_SYMBOL: Final = "_Z21mtmd_get_memory_usagePKc19mtmd_context_params"
_NODE_WORDS: Final = 2
"""Machine words of a map node: a device and bytes."""


class ProjectorMemory(NamedTuple):
    """Bytes of a projector with its compute buffers."""

    host: int
    accelerator: dict[int, int]
    """By the handle of the device."""


def projector_bytes(file: ModelFile, *, uses_accelerator: bool) -> ProjectorMemory:
    """Predict a projector's memory for an image of its native size.

    Args:
        file: the projector's file.
        uses_accelerator: whether it runs on the accelerator.

    Raises:
        LoadError: libmtmd refuses it, or the layout of its report is unknown.
    """
    mtmd = load_mtmd()
    path = file.library_paths[0]
    params = context_params(mtmd, 1, uses_accelerator=uses_accelerator)
    library = mtmd._libmtmd  # not in the C API
    asked = ctypes.c_char_p(path), params
    found = read_std_map(library, _SYMBOL, *asked, n_words=_NODE_WORDS)
    if not found:
        with captured_log() as log:  # to capture the reason
            mtmd.mtmd_init_from_file(path, None, params)
        raise projector_load_error(file, log)
    host = sum(n_bytes for device, n_bytes in found if is_cpu(device))
    return ProjectorMemory(
        host, {device: n_bytes for device, n_bytes in found if not is_cpu(device)}
    )
