"""Connect to a daemon as other users: the kernel tells it who connected."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

import pytest

from tests.daemon.harness import Connection, DaemonProcess, Listener

ANNA: Final = 70_001
BERT: Final = 70_002
SHARED_GROUP: Final = "users"
SHARED_GID: Final = 100

D = TypeVar("D", bound=DaemonProcess)

needs_root: Final = pytest.mark.root
"""Only root can connect as other users; see `tests/conftest.py`."""


@contextmanager
def as_user(uid: int, *gids: int) -> Iterator[None]:
    """Be another user while inside, as far as files and sockets are concerned.

    Args:
        uid: of the user; the main group has the same number.
        gids: further groups.
    """
    groups = os.getgroups()
    os.setgroups(gids)
    os.setegid(uid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


def open_to_all(daemon: D) -> D:
    """Let every user reach the sockets of a daemon, whose own modes decide then."""
    daemon.scratch.chmod(0o755)
    daemon.directory.mkdir(mode=0o755)
    daemon.directory.chmod(0o755)
    return daemon


def connect_as(
    daemon: DaemonProcess, uid: int, *gids: int, leaf: str = "infer.sock"
) -> Connection:
    """Connect to an inference socket as another user, in the group that may."""
    with as_user(uid, SHARED_GID, *gids):
        return daemon.connect(leaf)


def listen_as(path: Path, uid: int) -> Listener:
    """Connect to an admin socket as another user, in the group that may."""
    with as_user(uid, SHARED_GID):
        return Listener(path)
