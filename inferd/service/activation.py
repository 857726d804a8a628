"""Sockets that systemd passes to a service, as sd_listen_fds(3) has them."""

import os
import socket
import stat
from collections.abc import Collection, Mapping, MutableMapping
from typing import Final

FIRST_FD: Final = 3
"""The first descriptor that systemd passes; the others follow it without a gap."""
LISTEN_VARIABLES: Final = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")
"""Environment variables of the activation, which child processes must not inherit."""


class ActivationError(Exception):
    """What is passed cannot be used; the message is one line for the operator."""


def passed_fds(environ: Mapping[str, str], pid: int) -> list[tuple[str, int]]:
    """Parse the variables; pure.

    Args:
        environ: has the ``LISTEN_VARIABLES`` where sockets are passed.
        pid: our own; variables for another process are ignored.

    Returns:
        Each descriptor with its ``FileDescriptorName=``; none if none is for this process.

    Raises:
        ActivationError: a variable is invalid.
    """
    if not environ.get("LISTEN_PID") or _number(environ, "LISTEN_PID") != pid:
        return []
    n_fds = _number(environ, "LISTEN_FDS")
    if not n_fds:
        return []
    names = environ.get("LISTEN_FDNAMES", "").split(":")
    if len(names) != n_fds:
        raise ActivationError(
            f"LISTEN_FDS is {n_fds} and LISTEN_FDNAMES has {len(names)} names"
        )
    return [(name, fd) for fd, name in enumerate(names, start=FIRST_FD)]


def _number(environ: Mapping[str, str], variable: str) -> int:
    text = environ.get(variable, "")
    if not (text.isascii() and text.isdigit()):
        raise ActivationError(f"{variable} is not a number: {text[:20]!r}")
    return int(text)


def forget_passed(environ: MutableMapping[str, str]) -> None:
    """Remove the variables, so that no child process takes a descriptor for its own."""
    for variable in LISTEN_VARIABLES:
        environ.pop(variable, None)


def keep_from_children(fd: int) -> None:
    """Close a passed descriptor in child processes.

    Raises:
        ActivationError: there is no such descriptor.
    """
    try:
        os.set_inheritable(fd, False)  # noqa: FBT003  # os's own signature
    except OSError as error:
        raise ActivationError(f"inherited descriptor {fd}: {error.strerror}") from error


def adopt(
    name: str, fd: int, families: Collection[int], kind: str = "stream"
) -> socket.socket:
    """Make a non-blocking socket of a passed descriptor, which it owns from now on.

    Args:
        name: for the error.
        fd: the descriptor.
        families: of the sockets that may be passed.
        kind: what they are called in the error.

    Raises:
        ActivationError: it is no listening stream socket of these families.
    """
    if not stat.S_ISSOCK(os.fstat(fd).st_mode):
        raise ActivationError(f"inherited {name}: descriptor {fd} is not a socket")
    sock = socket.socket(fileno=fd)
    is_stream = sock.family in families and sock.type == socket.SOCK_STREAM
    if not is_stream or not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        sock.close()
        raise ActivationError(f"inherited {name}: not a listening {kind} socket")
    sock.setblocking(False)  # noqa: FBT003  # socket's own signature
    return sock
