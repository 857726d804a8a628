"""Parse the variables with which systemd passes sockets, as sd_listen_fds(3) does."""

from collections.abc import Mapping, Sequence
from typing import Final

from inferd.surfaces import SURFACES, Surface

FIRST_FD: Final = 3
"""The first descriptor that systemd passes; the others follow it without a gap."""


class ActivationError(Exception):
    """The variables are invalid; the message is one line for the operator."""


def listen_fds(
    environ: Mapping[str, str], pid: int, surfaces: Sequence[Surface] = SURFACES
) -> dict[str, int]:
    """Map passed descriptors to the file names of their sockets, in any order.

    Args:
        environ: has the ``LISTEN_VARIABLES`` where sockets are passed.
        pid: our own; variables for another process are ignored.
        surfaces: whose sockets may be passed, under their ``FileDescriptorName=``.

    Returns:
        The descriptor of each socket, by its file name; empty if none is for this process.

    Raises:
        ActivationError: a variable is invalid, or a name is unknown or given twice.
    """
    if not environ.get("LISTEN_PID") or _number(environ, "LISTEN_PID") != pid:
        return {}
    n_fds = _number(environ, "LISTEN_FDS")
    if not n_fds:
        return {}
    names = environ.get("LISTEN_FDNAMES", "").split(":")
    if len(names) != n_fds:
        raise ActivationError(
            f"LISTEN_FDS is {n_fds} and LISTEN_FDNAMES has {len(names)} names"
        )
    known = {each.fd_name: each.socket for each in surfaces}
    return {
        _leaf(name, names, known): fd for fd, name in enumerate(names, start=FIRST_FD)
    }


def _number(environ: Mapping[str, str], variable: str) -> int:
    text = environ.get(variable, "")
    if not (text.isascii() and text.isdigit()):
        raise ActivationError(f"{variable} is not a number: {text[:20]!r}")
    return int(text)


def _leaf(name: str, names: list[str], known: Mapping[str, str]) -> str:
    if name not in known:
        raise ActivationError(
            f"an inherited socket is called {name!r}; "
            f"FileDescriptorName= is one of {', '.join(known)}"
        )
    if names.count(name) > 1:
        raise ActivationError(f"two inherited sockets are called {name}")
    return known[name]
