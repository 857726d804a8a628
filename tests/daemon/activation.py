"""Hand listening sockets over to a daemon, as systemd does, and hold on to them."""

import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

LAUNCH: Final = """
import fcntl, os, sys
fds, *command = sys.argv[1:]
aside = [fcntl.fcntl(int(fd), fcntl.F_DUPFD, 100) for fd in fds.split(",")]
for target, fd in enumerate(aside, 3):
    os.dup2(fd, target)
    os.close(fd)
os.environ["LISTEN_PID"] = str(os.getpid())
os.execv(command[0], command)
"""
"""Puts descriptors where they are looked for, and becomes the program."""


class HeldSockets:
    """Listening sockets that outlive every daemon they are handed over to.

    Args:
        directory: where they are bound.
        names: what they are called, in the order of their descriptors.
    """

    def __init__(self, directory: Path, names: Sequence[str]) -> None:
        directory.mkdir(mode=0o700, exist_ok=True)
        self._names = names
        self._sockets = [_listen(directory / f"{name}.sock") for name in names]

    @property
    def fds(self) -> list[int]:
        """Their descriptors here, which are to be passed on."""
        return [sock.fileno() for sock in self._sockets]

    @property
    def environ(self) -> dict[str, str]:
        """What is said of them, but for the process they are meant for."""
        names = ":".join(self._names)
        return {"LISTEN_FDS": str(len(self._sockets)), "LISTEN_FDNAMES": names}

    def launch(self, *command: str) -> list[str]:
        """Write the command that hands them over."""
        fds = ",".join(map(str, self.fds))
        return [sys.executable, "-c", LAUNCH, fds, *command]

    def close(self) -> None:
        """Let go of them."""
        for sock in self._sockets:
            sock.close()


def _listen(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(os.fspath(path))
    path.chmod(0o600 if path.stem == "admin" else 0o660)
    sock.listen(4096)
    return sock
