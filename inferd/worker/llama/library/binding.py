"""Load llama.cpp, disable its Python logger, and compare its structs with the binding.

ctypes trusts any layout. A library of another release than the binding would write past the
end of our structs, so their sizes are measured first.
"""

import ctypes
import platform
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from inferd.service.importing import empty_module
from inferd.worker.backend import LoadError, LoadReporter
from inferd.worker.llama.library import cpu_variants
from inferd.worker.native.struct_size import written_bytes

try:
    with empty_module("llama_cpp.llama"):
        import llama_cpp
        from llama_cpp import llama_cpp as llama
except (ImportError, OSError, RuntimeError) as error:
    raise LoadError(
        "llama.cpp does not load; run: make setup",
        f"llama.cpp does not load ({error}); run: make setup",
    ) from error

__all__ = [
    "Library",
    "check_struct",
    "llama",
    "load_library",
    "load_model",
    "struct_size",
]


class Library(NamedTuple):
    """The loaded library."""

    cpu_variant: str = ""
    """The CPU variant in use; empty if the library was built without variants."""
    description: str = ""
    """Its name, version, CPU variant and CPU features."""


def load_library(
    report: LoadReporter = lambda _: None,
    *,
    wanted: str | None = None,
    crashed: Collection[str] = (),
) -> Library:
    """Initialise the library and load a CPU variant.

    Args:
        report: called with each CPU variant before it is opened, and the chosen one before
            it is loaded, if there are variants.
        wanted: the configured variant; ``None`` for the best.
        crashed: variants that must not be used.

    Raises:
        LoadError: its structs are not those of the binding, or no variant is usable.
    """
    # The binding's logger is a Python callback, which takes the interpreter lock in native
    # threads. llama.cpp's default logger writes to stderr, which the daemon reads, even
    # while the process crashes.
    llama.llama_log_set(ctypes.cast(0, llama.llama_log_callback), None)
    check_struct("llama_model_params", "llama_model_default_params")
    check_struct("llama_context_params", "llama_context_default_params")
    variant = _load_variant(report, wanted, crashed)
    llama.llama_backend_init()
    listed = ", ".join(cpu_features())
    return Library(
        variant,
        f"llama-cpp-python {llama_cpp.__version__} "
        + (f"({variant}: {listed})" if variant else f"({listed})"),
    )


def load_model(paths: Sequence[bytes], params: ctypes.Structure) -> int | None:
    """Load a model from its files; ``None`` if the library refuses them.

    All paths are passed: given only the first, the library would derive the others' names.
    """
    names = (ctypes.c_char_p * len(paths))(*paths)
    handle: int | None = llama.llama_model_load_from_splits(names, len(paths), params)
    return handle


def _load_variant(
    report: LoadReporter, wanted: str | None, crashed: Collection[str]
) -> str:
    library: ctypes.CDLL = llama._lib  # the binding has no public name for it
    paths = cpu_variants.find_variants(Path(library._name).parent)
    if not paths and wanted is None:
        return ""
    chosen = cpu_variants.pick(paths, report, wanted=wanted, crashed=crashed)
    report(chosen)
    cpu_variants.load(library, paths[chosen.name])
    return chosen.name


def check_struct(name: str, make_default: str, binding: ModuleType = llama) -> None:
    """Compare a struct's size in the binding with what the library writes.

    Args:
        name: the struct's name.
        make_default: name of the library's function that returns one by value.
        binding: the ctypes module of the library.

    Raises:
        LoadError: the sizes differ.
    """
    if platform.machine() != "x86_64":
        return  # elsewhere results are not passed as arguments; the self-test has to find it
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
    """Measure the struct that a function returns by value.

    Trailing padding is not written, so the end of the last field is rounded up to the
    alignment of a pointer.

    Args:
        function: address of a function without arguments, whose result is larger than two
            registers.
    """
    alignment = ctypes.alignment(ctypes.c_void_p)
    return -(-written_bytes(function) // alignment) * alignment


def cpu_features() -> list[str]:
    """List the CPU features in use, by the names of ``llama_print_system_info``."""
    system = llama.llama_print_system_info().decode()
    return re.findall(r"(\w+) = 1", system)
