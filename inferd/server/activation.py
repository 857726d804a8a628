"""What systemd says of the sockets that it hands over: sd_listen_fds' protocol."""

from collections.abc import Mapping
from typing import Final

from inferd.paths import (
    ADMIN_SOCKET,
    EMBED_SOCKET,
    INFER_SOCKET,
    INFER_V2_SOCKET,
    RERANK_SOCKET,
)

FIRST_FD: Final = 3
"""The first descriptor that is handed over; the others follow it without a gap."""

NAMES: Final = {
    leaf.removesuffix(".sock"): leaf
    for leaf in (
        *(INFER_SOCKET, INFER_V2_SOCKET, EMBED_SOCKET, RERANK_SOCKET),
        ADMIN_SOCKET,
    )
}
"""What ``FileDescriptorName=`` may be, to the leaf of the socket."""


class ActivationError(Exception):
    """What is handed over cannot be made out; one line for the operator."""


def handed_over(environ: Mapping[str, str], pid: int) -> dict[str, int]:
    """Tell which descriptors are whose sockets, in whatever order they come.

    Args:
        environ: where the ``LISTEN_VARIABLES`` stand, or not.
        pid: our own; what is meant for another process is none of ours.

    Returns:
        The descriptor of each leaf; none if nothing is handed over.

    Raises:
        ActivationError: a variable makes no sense, a name is unknown or there twice.
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
    return {_leaf(name, names): fd for fd, name in enumerate(names, start=FIRST_FD)}


def _number(environ: Mapping[str, str], variable: str) -> int:
    text = environ.get(variable, "")
    if not (text.isascii() and text.isdigit()):
        raise ActivationError(f"{variable} is not a number: {text[:20]!r}")
    return int(text)


def _leaf(name: str, names: list[str]) -> str:
    if name not in NAMES:
        known = ", ".join(NAMES)
        raise ActivationError(
            f"an inherited socket is called {name!r}; FileDescriptorName= is one of {known}"
        )
    if names.count(name) > 1:
        raise ActivationError(f"two inherited sockets are called {name}")
    return NAMES[name]
