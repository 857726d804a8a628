"""Import modules without garbage collections in between."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


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
