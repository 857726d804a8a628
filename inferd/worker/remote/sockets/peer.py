"""Who listens at a remote's Unix socket: the kernel says it, before anything is sent."""

import os
from collections.abc import Collection

from inferd.peer_credentials import ConnectedSocket, credentials_of

ROOT_UID = 0


class UntrustedListenerError(Exception):
    """A user listens who is not to be asked; the text says what would allow it."""


def check_listener(sock: ConnectedSocket, trusted_uids: Collection[int]) -> None:
    """Check the user of the process that listens at the other end.

    Args:
        sock: connected; nothing was sent yet.
        trusted_uids: besides root and the user of this process.

    Raises:
        UntrustedListenerError: it is another one.
    """
    uid = credentials_of(sock).uid
    if uid not in {ROOT_UID, os.geteuid(), *trusted_uids}:
        raise UntrustedListenerError(
            f"uid {uid} listens at its socket, who is neither root nor this user; "
            "trusted_uids names others"
        )
