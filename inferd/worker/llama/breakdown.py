"""Where llama.cpp keeps what a context needs: bytes by buffer, from its own accounts.

Their sum is compared with one that the C interface tells, so another layout than we know
is found out rather than believed.
"""

import ctypes
from typing import Final, NamedTuple

from inferd.worker.llama.accounts import accounts, is_cpu, stranger
from inferd.worker.llama.library import llama

_SYMBOL: Final = "_Z26llama_get_memory_breakdownPK13llama_context"
_SLACK: Final = 1.1
"""Buffers are larger than the tensors in them: alignment. 1.00001 was seen."""


class Breakdown(NamedTuple):
    """Bytes of a model and a context of it."""

    mapped: int
    """Weights as they are in the file."""
    repacked: int
    """Weights that the processor wants in another order: a copy of those in the file."""
    cache: int
    """The KV cache, or states."""
    compute: int
    accelerator: int
    """All that is not in the machine's own memory."""


class _Node(NamedTuple):
    """A buffer's type, and ``llama_memory_breakdown_data``."""

    buffer_type: int
    model: int
    context: int
    compute: int


def breakdown(context: ctypes.c_void_p, n_weights: int) -> Breakdown:
    """Read what a context and its model take.

    Args:
        context: a ``llama_context *``; what it would take, if its model is a dry one.
        n_weights: bytes of the model's tensors.

    Raises:
        LoadError: the library's accounts are not as we know them.
    """
    asked = ctypes.cast(context, ctypes.c_void_p)
    found = accounts(llama._lib, _SYMBOL, asked, n_words=len(_Node._fields))
    nodes = [_Node._make(each) for each in found]
    told = sum(node.model for node in nodes)
    if not n_weights <= told <= _SLACK * n_weights:
        raise stranger()
    return _sorted(nodes)


def _sorted(nodes: list[_Node]) -> Breakdown:
    """Sort the buffers by where they are."""
    mapped = repacked = cache = compute = accelerator = 0
    for node in nodes:
        is_plain = _is_plain(node.buffer_type)
        if is_plain or _is_cpu(node.buffer_type):
            mapped += node.model * is_plain
            repacked += node.model * (not is_plain)
            cache += node.context
            compute += node.compute
        else:
            accelerator += node.model + node.context + node.compute
    return Breakdown(mapped, repacked, cache, compute, accelerator)


def _is_plain(buffer_type: int) -> bool:
    """Whether what is in a buffer is in the machine's memory, as ggml has it."""
    ask = llama._lib.ggml_backend_buft_is_host  # the binding has no ggml
    ask.restype, ask.argtypes = ctypes.c_bool, [ctypes.c_void_p]
    return bool(ask(buffer_type))


def _is_cpu(buffer_type: int) -> bool:
    """Whether it is the processor that computes with a buffer."""
    device = llama._lib.ggml_backend_buft_get_device
    device.restype, device.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    found = device(buffer_type)
    return not found or is_cpu(found)
