"""Read a ``std::map`` that a C++ function of llama.cpp's libraries returns.

Memory reports exist only in their C++ APIs. The map is read by libstdc++'s layout, which has
not changed in twenty years; the libraries are pinned (ADR 0007).
"""

import ctypes
from collections.abc import Iterator
from typing import Final

from inferd.worker.backend import LoadError
from inferd.worker.llama.library.binding import llama

__all__ = ["is_cpu", "read_std_map", "unknown_layout_error"]

_CPU: Final = 0
"""``GGML_BACKEND_DEVICE_TYPE_CPU``."""
_LINKS: Final = 4
"""Machine words of a tree node before its key: colour, parent, left, right."""

_Words = ctypes.c_size_t * 6
"""A map: its comparator, the header of its tree (colour, root, first, last), and the number
of nodes."""


class _Map(ctypes.Structure):
    """The map as a struct, which ctypes can return by value."""

    _fields_ = (("words", _Words),)  # type: ignore[mutable-override]


Argument = ctypes.c_void_p | ctypes.c_char_p | ctypes.Structure


def read_std_map(
    library: ctypes.CDLL, symbol: str, *arguments: Argument, n_words: int
) -> list[tuple[int, ...]]:
    """Call a function that returns a map; return its nodes in the order of their keys.

    Args:
        library: the library.
        symbol: the function's mangled name.
        arguments: the function's arguments.
        n_words: machine words of a node's key and value.

    Raises:
        LoadError: the function is missing, or its result has an unknown layout.
    """
    try:
        ask = library[symbol]
    except AttributeError as error:
        raise unknown_layout_error() from error
    ask.restype, ask.argtypes = _Map, [type(each) for each in arguments]
    _, _, root, _, _, n_nodes = ask(*arguments).words
    nodes = list(_walk(root, n_nodes, n_words))
    if len(nodes) != n_nodes:
        raise unknown_layout_error()
    return nodes


def is_cpu(device: int) -> bool:
    """Tell whether a device is the CPU."""
    kind = llama._lib.ggml_backend_dev_type  # the binding has no ggml
    kind.restype, kind.argtypes = ctypes.c_int, [ctypes.c_void_p]
    return bool(kind(device) == _CPU)


def unknown_layout_error() -> LoadError:
    """Return the error for a memory report of unknown layout."""
    return LoadError(
        "llama.cpp's memory report is not that of the pinned release; run: make setup"
    )


def _walk(address: int, n_left: int, n_words: int) -> Iterator[tuple[int, ...]]:
    """Yield the nodes of a subtree in order, at most ``n_left`` deep."""
    if address and n_left:
        node = (ctypes.c_size_t * (_LINKS + n_words)).from_address(address)
        _, _, left, right, *held = node
        yield from _walk(left, n_left - 1, n_words)
        yield tuple(held)
        yield from _walk(right, n_left - 1, n_words)
