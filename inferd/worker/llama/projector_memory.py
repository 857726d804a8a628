"""Predict what a projector takes, without loading its weights.

libmtmd tells it by its C++ interface alone, as a ``std::map`` from devices to bytes: see
``breakdown``, which reads the like. A layout that has changed is found out by the weights:
it cannot take less than their file has.
"""

import ctypes
from collections.abc import Iterator
from typing import Final, NamedTuple

from inferd.worker.backend import LoadError
from inferd.worker.llama.files import ModelFile
from inferd.worker.llama.library import llama
from inferd.worker.llama.mtmd import heard, load_mtmd, parameters, refusal

__all__ = ["Taken", "projector_bytes"]

_SYMBOL: Final = "_Z21mtmd_get_memory_usagePKc19mtmd_context_params"
_CPU: Final = 0
"""``GGML_BACKEND_DEVICE_TYPE_CPU``."""

_Words = ctypes.c_size_t * 6


class _Map(ctypes.Structure):
    """A ``std::map``: its comparison, its head (colour, root, first, last), its size."""

    _fields_ = (("words", _Words),)  # type: ignore[mutable-override]


class _Node(NamedTuple):
    color: int
    parent: int
    left: int
    right: int
    device: int
    n_bytes: int


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
    try:
        ask = mtmd._libmtmd[_SYMBOL]  # not in the C interface
    except AttributeError as error:
        raise _stranger() from error
    ask.restype = _Map
    ask.argtypes = [ctypes.c_char_p, mtmd.mtmd_context_params]
    params = parameters(mtmd, 1, uses_accelerator=uses_accelerator)
    _, _, root, _, _, n_nodes = ask(file.library_paths[0], params).words
    if not n_nodes:
        with heard() as words:  # it said nothing of why
            mtmd.mtmd_init_from_file(file.library_paths[0], None, params)
        raise refusal(file, words)
    nodes = list(_walk(root, n_nodes))
    total = sum(each.n_bytes for each in nodes)
    if len(nodes) != n_nodes:
        raise _stranger()
    host = sum(each.n_bytes for each in nodes if _is_cpu(each.device))
    return Taken(host, total - host)


def _stranger() -> LoadError:
    return LoadError(
        "libmtmd's accounts of its memory are not those of the pinned release; "
        "run: make setup"
    )


def _walk(address: int, n_left: int) -> Iterator[_Node]:
    if address and n_left:
        words = ctypes.c_size_t * len(_Node._fields)
        node = _Node._make(words.from_address(address))
        yield from _walk(node.left, n_left - 1)
        yield node
        yield from _walk(node.right, n_left - 1)


def _is_cpu(device: int) -> bool:
    kind = llama._lib.ggml_backend_dev_type  # the binding has no ggml
    kind.restype, kind.argtypes = ctypes.c_int, [ctypes.c_void_p]
    return bool(kind(device) == _CPU)
