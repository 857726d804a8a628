"""Load llama.cpp, quiet its Python logger, and check that its structs fit.

ctypes believes any layout. A library built from another llama.cpp than the binding would
write past our structs, so each is filled with a pattern first: the last byte that the
library wrote tells its true size.
"""

import ctypes
import platform
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from inferd.capabilities import AcceleratorKind
from inferd.worker.backend import LoadError, Report
from inferd.worker.llama import variants

try:
    import llama_cpp
    from llama_cpp import llama_cpp as llama
except (ImportError, OSError, RuntimeError) as error:
    raise LoadError(
        "llama.cpp does not load; run: make setup",
        f"llama.cpp does not load ({error}); run: make setup",
    ) from error

__all__ = [
    "Library",
    "accelerator",
    "check_struct",
    "llama",
    "load_library",
    "load_model",
    "struct_size",
]

_PROBE_BYTES = 1024
_PATTERNS = (0xAA, 0x55)


class Library(NamedTuple):
    """What was loaded."""

    cpu_variant: str = ""
    """Of its CPU code; empty where it has one for all."""
    description: str = ""
    """Its name, version, variant and features."""


def load_library(
    report: Report = lambda _: None,
    *,
    wanted: str | None = None,
    crashed: Collection[str] = (),
) -> Library:
    """Make the library ready for use.

    Args:
        report: told which variant of its CPU code is loaded next, if it has variants.
        wanted: the only one to be used; ``None`` for the best.
        crashed: those that are not to be used.

    Raises:
        LoadError: its structs are not those of the binding, or no variant will do.
    """
    # The binding installs a logger in Python that takes the interpreter's lock in native
    # threads. llama.cpp's own writes to stderr, which the daemon reads, even as it dies.
    llama.llama_log_set(ctypes.cast(0, llama.llama_log_callback), None)
    check_struct("llama_model_params", "llama_model_default_params")
    check_struct("llama_context_params", "llama_context_default_params")
    variant = _load_variant(report, wanted, crashed)
    llama.llama_backend_init()
    listed = ", ".join(features())
    return Library(
        variant,
        f"llama-cpp-python {llama_cpp.__version__} "
        + (f"({variant}: {listed})" if variant else f"({listed})"),
    )


def load_model(paths: Sequence[bytes], params: ctypes.Structure) -> int | None:
    """Load the files that a model is made of; nothing if the library refuses them.

    They are named one by one: from the name of the first it would make up the others'.
    """
    names = (ctypes.c_char_p * len(paths))(*paths)
    handle: int | None = llama.llama_model_load_from_splits(names, len(paths), params)
    return handle


def _load_variant(report: Report, wanted: str | None, crashed: Collection[str]) -> str:
    library: ctypes.CDLL = llama._lib  # it has no other name
    paths = variants.find_variants(Path(library._name).parent)
    if not paths and wanted is None:
        return ""
    chosen = variants.pick(paths, wanted=wanted, crashed=crashed)
    report(chosen)
    variants.load(library, paths[chosen.name])
    return chosen.name


def check_struct(name: str, make_default: str, binding: ModuleType = llama) -> None:
    """Compare a struct's size in the binding with what the library writes.

    Args:
        name: of the struct.
        make_default: the library's function that returns one by value.
        binding: of the library.

    Raises:
        LoadError: they differ.
    """
    if platform.machine() != "x86_64":
        return  # elsewhere the address of a result is no argument; the self-test must do
    expected = ctypes.sizeof(getattr(binding, name))
    written = struct_size(_address(make_default, binding))
    if written != expected:
        raise LoadError(
            f"llama.cpp's {name} has {written} bytes, the binding expects {expected}: "
            "library and binding are from different releases; run: make setup"
        )


def _address(function: str, binding: ModuleType = llama) -> int:
    pointer = ctypes.cast(getattr(binding, function), ctypes.c_void_p)
    return pointer.value or 0


def struct_size(function: int) -> int:
    """Measure what a function that returns a struct by value writes.

    Padding keeps the pattern, so the size is that of the last field, rounded up to the
    alignment of a pointer.

    Args:
        function: its address. It takes no arguments, and its result is larger than two
            registers, so the caller passes the place to write it.
    """
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function)
    last = 0
    for pattern in _PATTERNS:
        room = (ctypes.c_uint8 * _PROBE_BYTES)(*([pattern] * _PROBE_BYTES))
        call(ctypes.addressof(room))
        written = [index for index, byte in enumerate(room) if byte != pattern]
        last = max(last, written[-1] + 1 if written else 0)
    alignment = ctypes.alignment(ctypes.c_void_p)
    return -(-last // alignment) * alignment


def features() -> list[str]:
    """List what the library was compiled to use, in its own words."""
    system = llama.llama_print_system_info().decode()
    return re.findall(r"(\w+) = 1", system)


def accelerator() -> AcceleratorKind:
    """Find what this build of llama.cpp was made for."""
    if llama.llama_supports_gpu_offload():
        system = llama.llama_print_system_info().decode()
        for name, kind in _ACCELERATORS.items():
            if f"{name} :" in system:
                return kind
    return AcceleratorKind.CPU


_ACCELERATORS = {
    "CUDA": AcceleratorKind.CUDA,
    "ROCm": AcceleratorKind.ROCM,
    "Metal": AcceleratorKind.METAL,
    "Vulkan": AcceleratorKind.VULKAN,
}
"""Names of ggml's backends, as they introduce their features."""
