"""Import modules without what makes that slow."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


@contextmanager
def without_collections() -> Iterator[None]:
    """Collect no garbage while inside, where modules are imported.

    What modules define stays, but Python would visit all of it several times: a tenth of
    the processor time that a daemon takes to start.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def without_package(name: str) -> Iterator[None]:
    """Let nothing import a package while inside, unless it is imported already.

    structlog imports rich wherever that is installed, for tracebacks in colour that the
    daemon never writes: a quarter of the processor time that it takes to start.
    """
    is_hidden = name not in sys.modules
    if is_hidden:
        sys.modules[name] = None  # type: ignore[assignment]  # as the documents of import say
    try:
        yield
    finally:
        if is_hidden:
            del sys.modules[name]


@contextmanager
def empty_module(name: str) -> Iterator[None]:
    """Have a module imported as one that has nothing while inside, unless it is there already.

    The package of llama.cpp's binding imports a class for programs, with caches, templates and
    types of servers, beside the functions of the library.
    """
    is_replaced = name not in sys.modules
    if is_replaced:
        sys.modules[name] = ModuleType(name)
    try:
        yield
    finally:
        if is_replaced:
            del sys.modules[name]
