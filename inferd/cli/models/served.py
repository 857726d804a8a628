"""The models that a running daemon serves, as its admin socket tells."""

from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from inferd.cli.connect import ADMIN_TIMEOUT_S, configured_directory
from inferd.cli.console import CommandError
from inferd.cli.unreachable import find_stopped
from inferd.client.discovery import NoDaemonError
from inferd.client.exchange import ClientError
from inferd.client.sync import ExchangeBounds, watch_status


class ServedModel(Struct, kw_only=True):
    """A backend that has been ready, read from its ``capabilities`` frame."""

    backend: str
    """Its name, for the ``model`` of requests."""
    aliases: list[str] = []
    """Further names."""
    state: str | None = None
    """``None`` from a daemon that does not tell."""
    model: str | None = None
    """The model's own name."""

    def __str__(self) -> str:
        also = f" (also {', '.join(self.aliases)})" if self.aliases else ""
        facts = ", ".join(filter(None, (self.state, self.model)))
        return f"served: {self.backend}{also}: {facts or 'of an unknown state'}"


def served_models(directory: Path | None) -> list[ServedModel] | None:
    """Ask a running daemon what it serves.

    Args:
        directory: of its sockets; ``None`` for the configured or default ones.

    Returns:
        One for each backend that has been ready; ``None`` if no daemon tells this user, or
        asking would start one.
    """
    served: list[ServedModel] = []
    with suppress(
        CommandError, NoDaemonError, ClientError, OSError, msgspec.DecodeError
    ):
        directory = directory or configured_directory()
        if find_stopped(directory) is not None:
            return None
        bounds = ExchangeBounds(ADMIN_TIMEOUT_S)
        for frame, status in watch_status(directory, bounds=bounds):
            if status.status != "capabilities":
                return served
            served.append(msgspec.json.decode(frame, type=ServedModel))
    return None
