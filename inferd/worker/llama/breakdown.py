"""Where llama.cpp keeps what a context needs: bytes by buffer, from its own accounts.

Its C interface does not tell. Its C++ one does, with a ``std::map`` that we read as
libstdc++ lays it out, which no compiler has changed in twenty years. The library is
pinned (ADR 0007); the sum is compared with one that the C interface tells, so another
layout is found out rather than believed.
"""

import ctypes
from collections.abc import Iterator
from typing import Final, NamedTuple

from inferd.worker.backend import LoadError
from inferd.worker.llama.library import llama

_SYMBOL: Final = "_Z26llama_get_memory_breakdownPK13llama_context"
_CPU: Final = 0
"""``GGML_BACKEND_DEVICE_TYPE_CPU``."""
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


_Words = ctypes.c_size_t * 6
"""A ``std::map``: its comparison, the head of its tree (colour, root, first, last), and
the number of nodes."""


class _Map(ctypes.Structure):
    """The same, as ctypes can take it from a function."""

    _fields_ = (("words", _Words),)  # type: ignore[mutable-override]


class _Node(NamedTuple):
    """A node of it, word by word: a buffer's type, and ``llama_memory_breakdown_data``."""

    color: int
    parent: int
    left: int
    right: int
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
    try:
        ask = llama._lib[_SYMBOL]  # not in the C interface
    except AttributeError as error:
        raise _stranger() from error
    ask.restype, ask.argtypes = _Map, [ctypes.c_void_p]
    _, _, root, _, _, n_nodes = ask(context).words
    nodes = list(_walk(root, n_nodes))
    told = sum(node.model for node in nodes)
    if len(nodes) != n_nodes or not n_weights <= told <= _SLACK * n_weights:
        raise _stranger()
    return _sorted(nodes)


def _stranger() -> LoadError:
    return LoadError(
        "llama.cpp's accounts of its memory are not those of the pinned release; "
        "run: make setup"
    )


def _walk(address: int, n_left: int) -> Iterator[_Node]:
    """Give the nodes from an address down, at most so many on each way."""
    if address and n_left:
        words = ctypes.c_size_t * len(_Node._fields)
        node = _Node._make(words.from_address(address))
        yield from _walk(node.left, n_left - 1)
        yield node
        yield from _walk(node.right, n_left - 1)


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
    kind = llama._lib.ggml_backend_dev_type
    kind.restype, kind.argtypes = ctypes.c_int, [ctypes.c_void_p]
    found = device(buffer_type)
    return not found or kind(found) == _CPU
