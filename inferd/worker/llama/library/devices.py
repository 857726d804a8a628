"""The devices that ggml can compute on besides the CPU: kind, name and memory."""

import ctypes
from collections.abc import Sequence
from typing import Final, NamedTuple, cast

from inferd.backend.capabilities import AcceleratorKind
from inferd.limits.accelerator import MAX_DEVICES
from inferd.worker.llama.library.binding import llama

_GPU: Final = 1
_INTEGRATED_GPU: Final = 2
"""Of ``ggml_backend_dev_type``; 0 is the CPU, 3 a library for some of its operations."""
_KINDS: Final = {
    "CUDA": AcceleratorKind.CUDA,
    "ROCm": AcceleratorKind.ROCM,
    "Metal": AcceleratorKind.METAL,
    "MTL": AcceleratorKind.METAL,
    "Vulkan": AcceleratorKind.VULKAN,
}
"""Kinds by the names of ggml's backends."""
NO_LIMIT: Final = 2**48
"""Bytes of a tensor that is larger than any cache."""
_CONTEXT_BYTES: Final = 4096
"""Bytes that ggml needs to describe one tensor."""


class _InitParams(ctypes.Structure):
    """``ggml_init_params``."""

    _fields_ = (  # type: ignore[mutable-override]
        ("mem_size", ctypes.c_size_t),
        ("mem_buffer", ctypes.c_void_p),
        ("no_alloc", ctypes.c_bool),
    )


class Device(NamedTuple):
    """A device with memory that weights and contexts can be in."""

    handle: int
    """A ``ggml_backend_dev_t``."""
    kind: AcceleratorKind
    name: str
    """What ggml calls it, such as ``Vulkan0``."""
    description: str
    """The name of the product."""
    total_bytes: int
    free_bytes: int
    """Now, and for all processes; some drivers give the total."""


def list_devices() -> list[Device]:
    """List the devices that this build of llama.cpp has found, of kinds known here.

    Bounds:
        ``MAX_DEVICES``; llama.cpp uses no more.
    """
    count = _function("ggml_backend_dev_count", ctypes.c_size_t)
    get = _function("ggml_backend_dev_get", ctypes.c_void_p, ctypes.c_size_t)
    found = [_device(get(index)) for index in range(count())]
    return [each for each in found if each is not None][:MAX_DEVICES]


def kind_of(devices: Sequence[Device]) -> AcceleratorKind:
    """Return the kind of the first device; the CPU where there is none."""
    return devices[0].kind if devices else AcceleratorKind.CPU


def largest_tensor_bytes(handle: int) -> int:
    """Find the largest tensor that a device computes with; ``NO_LIMIT`` if there is none.

    llama.cpp ends the process if a KV cache has a larger one. The driver's limit is not in
    ggml's interface, but a device says of each tensor whether it supports it.

    Args:
        handle: the device's.
    """
    if _supports_tensor(handle, NO_LIMIT) or not _supports_tensor(handle, 1):
        return NO_LIMIT  # or it does not tell
    least, most = 1, NO_LIMIT
    while most - least > 1:  # ``least`` is supported, ``most`` is not
        middle = (least + most) // 2
        if _supports_tensor(handle, middle):
            least = middle
        else:
            most = middle
    return least


def _supports_tensor(handle: int, n_bytes: int) -> bool:
    """Ask a device whether it computes with a tensor of so many bytes."""
    make = _function("ggml_init", ctypes.c_void_p, _InitParams)
    new = _function(
        "ggml_new_tensor_1d",
        ctypes.c_void_p,
        *(ctypes.c_void_p, ctypes.c_int, ctypes.c_int64),
    )
    supports = _function(
        "ggml_backend_dev_supports_op", ctypes.c_bool, ctypes.c_void_p, ctypes.c_void_p
    )
    free = _function("ggml_free", None, ctypes.c_void_p)
    context = make(_InitParams(_CONTEXT_BYTES, None, True))  # noqa: FBT003  # no_alloc
    try:
        return bool(supports(handle, new(context, llama.GGML_TYPE_I8, n_bytes)))
    finally:
        free(context)


def _device(handle: int) -> Device | None:
    ask_type = _function("ggml_backend_dev_type", ctypes.c_int, ctypes.c_void_p)
    if ask_type(handle) not in (_GPU, _INTEGRATED_GPU):
        return None
    registry = _function(
        "ggml_backend_dev_backend_reg", ctypes.c_void_p, ctypes.c_void_p
    )
    kind = _KINDS.get(_text("ggml_backend_reg_name", registry(handle)))
    if kind is None:
        return None
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    address = ctypes.POINTER(ctypes.c_size_t)
    memory = _function(
        "ggml_backend_dev_memory", None, ctypes.c_void_p, address, address
    )
    memory(handle, ctypes.byref(free), ctypes.byref(total))
    return Device(
        handle,
        kind,
        _text("ggml_backend_dev_name", handle),
        _text("ggml_backend_dev_description", handle),
        total.value,
        free.value,
    )


def _text(function: str, argument: int) -> str:
    ask = _function(function, ctypes.c_char_p, ctypes.c_void_p)
    return (ask(argument) or b"").decode("utf-8", "replace")


def _function(
    name: str, result: type | None, *arguments: type
) -> "ctypes._NamedFuncPointer":
    """Return a function of ggml, which the binding does not declare."""
    found = getattr(llama._lib, name)
    found.restype, found.argtypes = result, list(arguments)
    return cast("ctypes._NamedFuncPointer", found)
