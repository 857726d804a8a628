"""Predict what a projector takes, without loading its weights.

libmtmd tells it by its C++ interface alone (``accounts``).
"""

import ctypes
from typing import Final, NamedTuple

from inferd.worker.llama.accounts import accounts, is_cpu
from inferd.worker.llama.files import ModelFile
from inferd.worker.llama.mtmd import heard, load_mtmd, parameters, refusal

__all__ = ["Taken", "projector_bytes"]

_SYMBOL: Final = "_Z21mtmd_get_memory_usagePKc19mtmd_context_params"
_WORDS: Final = 2
"""Of a node: a device, and bytes."""


class Taken(NamedTuple):
    """Bytes of a projector and of what it computes in."""

    host: int
    accelerator: int


def projector_bytes(file: ModelFile, *, uses_accelerator: bool) -> Taken:
    """Tell what a projector takes, for a picture of the size that it was made for.

    Args:
        file: with it.
        uses_accelerator: whether it is computed there.

    Raises:
        LoadError: libmtmd refuses it, or its accounts are not as we know them.
    """
    mtmd = load_mtmd()
    path = file.library_paths[0]
    params = parameters(mtmd, 1, uses_accelerator=uses_accelerator)
    library = mtmd._libmtmd  # not in the C interface
    asked = ctypes.c_char_p(path), params
    found = accounts(library, _SYMBOL, *asked, n_words=_WORDS)
    if not found:
        with heard() as words:  # it said nothing of why
            mtmd.mtmd_init_from_file(path, None, params)
        raise refusal(file, words)
    host = sum(n_bytes for device, n_bytes in found if is_cpu(device))
    return Taken(host, sum(n_bytes for _, n_bytes in found) - host)
