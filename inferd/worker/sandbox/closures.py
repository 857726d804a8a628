"""Functions of ours that libraries call need code, which nobody makes while serving."""

import ctypes
from collections.abc import Callable
from typing import Final

_KEPT: Final[list[Callable[[], None]]] = []


def make_room_for_closures() -> None:
    """Have libffi map a page for them, and keep one so that it stays mapped.

    A page has room for a hundred, and one thread calls libraries with three at a time.
    """
    _KEPT.append(ctypes.CFUNCTYPE(None)(_nothing))


def _nothing() -> None:
    """Do nothing; it is never called."""
