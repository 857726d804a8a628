"""Ask llama.cpp's libraries what they keep in memory: accounts that C cannot read.

Their C++ interfaces alone give them, as a ``std::map``, which we read as libstdc++ lays it
out: no compiler has changed that in twenty years. The libraries are pinned (ADR 0007).
"""

import ctypes
from collections.abc import Iterator
from typing import Final

from inferd.worker.backend import LoadError
from inferd.worker.llama.library import llama

__all__ = ["accounts", "is_cpu", "stranger"]

_CPU: Final = 0
"""``GGML_BACKEND_DEVICE_TYPE_CPU``."""
_LINKS: Final = 4
"""Words of a node before what it holds: colour, parent, left, right."""

_Words = ctypes.c_size_t * 6
"""A map: its comparison, the head of its tree (colour, root, first, last), and the number
of nodes."""


class _Map(ctypes.Structure):
    """The same, as ctypes can take it from a function."""

    _fields_ = (("words", _Words),)  # type: ignore[mutable-override]


Argument = ctypes.c_void_p | ctypes.c_char_p | ctypes.Structure


def accounts(
    library: ctypes.CDLL, symbol: str, *arguments: Argument, n_words: int
) -> list[tuple[int, ...]]:
    """Ask for a map; give its nodes, in the order of their keys.

    Args:
        library: that is asked.
        symbol: its function's, as C++ writes it.
        arguments: of the function, as it takes them.
        n_words: that a node holds: key and value.

    Raises:
        LoadError: there is no such function, or what it gives is no map as we know it.
    """
    try:
        ask = library[symbol]
    except AttributeError as error:
        raise stranger() from error
    ask.restype, ask.argtypes = _Map, [type(each) for each in arguments]
    _, _, root, _, _, n_nodes = ask(*arguments).words
    nodes = list(_walk(root, n_nodes, n_words))
    if len(nodes) != n_nodes:
        raise stranger()
    return nodes


def is_cpu(device: int) -> bool:
    """Tell whether a device is the processor itself."""
    kind = llama._lib.ggml_backend_dev_type  # the binding has no ggml
    kind.restype, kind.argtypes = ctypes.c_int, [ctypes.c_void_p]
    return bool(kind(device) == _CPU)


def stranger() -> LoadError:
    """Say that accounts are not as we know them."""
    return LoadError(
        "llama.cpp's accounts of its memory are not those of the pinned release; "
        "run: make setup"
    )


def _walk(address: int, n_left: int, n_words: int) -> Iterator[tuple[int, ...]]:
    """Give the nodes from an address down, at most so many on each way."""
    if address and n_left:
        node = (ctypes.c_size_t * (_LINKS + n_words)).from_address(address)
        _, _, left, right, *held = node
        yield from _walk(left, n_left - 1, n_words)
        yield tuple(held)
        yield from _walk(right, n_left - 1, n_words)
