"""Which of the daemon's sockets systemd has passed."""

from collections.abc import Mapping, Sequence

from inferd.service.activation import ActivationError, passed_fds
from inferd.surfaces import SURFACES, Surface


def listen_fds(
    environ: Mapping[str, str], pid: int, surfaces: Sequence[Surface] = SURFACES
) -> dict[str, int]:
    """Map passed descriptors to the file names of their sockets, in any order.

    Args:
        environ: has the variables of the activation where sockets are passed.
        pid: our own; variables for another process are ignored.
        surfaces: whose sockets may be passed, under their ``FileDescriptorName=``.

    Returns:
        The descriptor of each socket, by its file name; empty if none is for this process.

    Raises:
        ActivationError: a variable is invalid, or a name is unknown or given twice.
    """
    passed = passed_fds(environ, pid)
    names = [name for name, _ in passed]
    known = {each.fd_name: each.socket for each in surfaces}
    return {_leaf(name, names, known): fd for name, fd in passed}


def _leaf(name: str, names: list[str], known: Mapping[str, str]) -> str:
    if name not in known:
        raise ActivationError(
            f"an inherited socket is called {name!r}; "
            f"FileDescriptorName= is one of {', '.join(known)}"
        )
    if names.count(name) > 1:
        raise ActivationError(f"two inherited sockets are called {name}")
    return known[name]
