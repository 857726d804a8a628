"""The settings of a client of the library."""

import os
import ssl
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypedDict

from inferd.client.connection.pool import MAX_CONNECTIONS
from inferd.client.core.retries import MAX_RETRIES

TIMEOUT_S: Final = 600.0
"""Seconds without anything from the daemon after which a call ends, unless the caller says
otherwise: longer than a long prompt takes on a slow machine."""
ID_BYTES: Final = 8
"""Random bytes of a request's id: ``inferd cancel`` tells apart those of all clients."""


class ClientOptions(TypedDict, total=False):
    """The options of ``Client`` and ``AsyncClient``; all may be left out."""

    timeout: float | None
    """Seconds without anything from the daemon after which a call ends with
    ``RequestTimeout``; ``None`` for any time. Default 600."""
    max_retries: int
    """Requests that the daemon refuses because it is busy are sent again so many times.
    Default 2."""
    max_connections: int
    """Requests that run at once; further ones wait. Default 16."""
    trusted_uids: Collection[int]
    """Users whose processes may answer, besides root, this user and the service's."""
    url: str | None
    """The address of a bridge, which is asked in place of the daemon's sockets:
    ``http://127.0.0.1:8313``, ``https://HOST`` or ``unix:/PATH`` of its socket."""
    token: str | None
    """A token of the bridge; none is needed where the bridge runs as this user."""
    tls: ssl.SSLContext | None
    """Verifies a bridge with ``https``. Default: by the certificates of this machine."""


@dataclass(frozen=True, kw_only=True)
class ClientSettings:
    """The settings of ``Client`` and ``AsyncClient``.

    Args:
        path: the directory of the sockets, or one of them; ``None`` for the default places.
        timeout: seconds without anything from the daemon; ``None`` for any time.
        max_retries: refused requests that are sent again.
        max_connections: connections at once.
        trusted_uids: users whose processes may answer, besides root, this user and the
            service's.
        url: the address of a bridge, in place of ``path``.
        token: of the bridge; ``None`` for none.
        tls: verifies a bridge with ``https``; ``None`` for the certificates of this machine.

    Raises:
        ValueError: a number is out of range, or both ``path`` and ``url`` are given.
    """

    path: str | os.PathLike[str] | None = None
    timeout: float | None = TIMEOUT_S
    max_retries: int = MAX_RETRIES
    max_connections: int = MAX_CONNECTIONS
    trusted_uids: Collection[int] = ()
    url: str | None = None
    token: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = None

    def __post_init__(self) -> None:
        if self.max_connections < 1 or self.max_retries < 0:
            raise ValueError(
                "max_connections must be at least 1, max_retries at least 0"
            )
        if self.timeout is not None and self.timeout <= 0:
            raise ValueError("timeout must be above 0")
        if self.url is not None and self.path is not None:
            raise ValueError("path and url: one of them, not both")
        if self.url is None and (self.token is not None or self.tls is not None):
            raise ValueError("token and tls are for a bridge: they need url")

    @property
    def directory(self) -> Path | None:
        """The directory of the sockets; ``None`` for the default ones."""
        if self.path is None:
            return None
        path = Path(self.path)
        return path.parent if path.suffix == ".sock" else path


def new_id() -> str:
    """Make the id of a request."""
    return os.urandom(ID_BYTES).hex()


def as_texts(texts: str | Sequence[str]) -> list[str]:
    """Return texts as a list; one text is a list of one."""
    return [texts] if isinstance(texts, str) else [*texts]
