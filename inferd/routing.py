"""Which backend serves a request."""

from collections.abc import Callable, Sequence

from inferd.backend import Backend, BackendCapabilities
from inferd.errors import BackendNotReadyError, BackendUnavailableError

Needs = Callable[[BackendCapabilities], bool]
"""Whether capabilities are enough for a request."""


def route(backends: Sequence[Backend], needs: Needs) -> Backend:
    """Choose the first backend, in configured order, that can do all that is asked.

    1. One that is ready.
    2. One that is only restarting: the request waits for it.
    3. One that is out of service: the request is refused with its reason.

    Raises:
        BackendUnavailableError: case 3, or none that could ever serve it.
    """
    capable = [backend for backend in backends if needs(backend.capabilities)]
    if not capable:
        raise BackendUnavailableError("no backend available")
    for backend in capable:
        if backend.ready:
            return backend
    for backend in capable:
        if backend.unavailable is None:
            return backend
    raise BackendNotReadyError(capable[0].unavailable or "")
