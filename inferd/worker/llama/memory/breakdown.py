"""Read llama.cpp's memory breakdown of a context: bytes by buffer type.

The sum of the weights is compared with the size that the C API reports, so an unknown
layout is detected.
"""

import ctypes
from collections import Counter
from typing import Final, NamedTuple

from inferd.worker.llama.library.binding import llama
from inferd.worker.llama.memory.std_map import (
    is_cpu,
    read_std_map,
    unknown_layout_error,
)

_SYMBOL: Final = "_Z26llama_get_memory_breakdownPK13llama_context"
_SLACK: Final = 1.1
"""Buffers exceed their tensors by alignment; the largest ratio measured is 1.00001."""


class Breakdown(NamedTuple):
    """Bytes of a model and one context of it."""

    mapped: int
    """Weights in the file's layout."""
    repacked: int
    """Copies of weights in another layout, for the CPU's kernels."""
    cache: int
    """KV cache or recurrent states."""
    compute: int
    accelerator: dict[int, int]
    """Everything outside host memory, by the handle of the device."""


class _Node(NamedTuple):
    """A buffer's type, and ``llama_memory_breakdown_data``."""

    buffer_type: int
    model: int
    context: int
    compute: int


def breakdown(context: ctypes.c_void_p, n_weights: int) -> Breakdown:
    """Read the memory breakdown of a context and its model.

    Args:
        context: a ``llama_context *``; if its model was loaded without weights, the
            breakdown is a prediction.
        n_weights: bytes of the model's tensors.

    Raises:
        LoadError: the layout of the breakdown is unknown.
    """
    asked = ctypes.cast(context, ctypes.c_void_p)
    found = read_std_map(llama._lib, _SYMBOL, asked, n_words=len(_Node._fields))
    nodes = [_Node._make(each) for each in found]
    found_bytes = _sorted(nodes)
    n_model_bytes = sum(node.model for node in nodes)
    # An embedding table that is the output layer as well is on both sides of a card's bus.
    n_twice = n_weights if found_bytes.accelerator else 0
    if not n_weights <= n_model_bytes <= _SLACK * n_weights + n_twice:
        raise unknown_layout_error()
    return found_bytes


def _sorted(nodes: list[_Node]) -> Breakdown:
    """Add up the buffers by their location."""
    mapped = repacked = cache = compute = 0
    accelerator: Counter[int] = Counter()
    for node in nodes:
        is_plain = _is_plain(node.buffer_type)
        device = _device_of(node.buffer_type)
        if is_plain or not device or is_cpu(device):
            mapped += node.model * is_plain
            repacked += node.model * (not is_plain)
            cache += node.context
            compute += node.compute
        else:
            accelerator[device] += node.model + node.context + node.compute
    return Breakdown(mapped, repacked, cache, compute, dict(accelerator))


def _is_plain(buffer_type: int) -> bool:
    """Tell whether a buffer is in host memory in ggml's own layout."""
    ask = llama._lib.ggml_backend_buft_is_host  # the binding has no ggml
    ask.restype, ask.argtypes = ctypes.c_bool, [ctypes.c_void_p]
    return bool(ask(buffer_type))


def _device_of(buffer_type: int) -> int:
    """Return the handle of a buffer's device; 0 if it has none."""
    device = llama._lib.ggml_backend_buft_get_device
    device.restype, device.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    return device(buffer_type) or 0
