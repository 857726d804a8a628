"""inferd status: what the daemon is doing."""

import argparse
from pathlib import Path
from typing import Final

import msgspec

from inferd import __version__
from inferd.cli.console import EXIT_NOT_READY, EXIT_OK, CommandError
from inferd.cli.daemon import ANSWER_S, START, add_socket_argument, configured_directory
from inferd.client.discovery import NoDaemonError
from inferd.client.exchange import ClientError
from inferd.client.sync import READY, watch_status
from inferd.client.trust import UntrustedServerError
from inferd.terminal import json_line, line
from inferd.wire.status import AnyStatus

ABILITIES: Final = (
    *("v2", "vision", "audio", "tools", "thinking"),
    *("embed", "rerank", "transcribe"),
)
"""Those of a ``capabilities`` frame that are told as they are called there."""


class Snapshot(msgspec.Struct, kw_only=True):
    """What ``inferd status --json`` prints."""

    status: str
    """``ready`` or another lifecycle status; ``unreachable`` when no daemon answers."""
    version: str
    """Of this command."""
    daemon_version: str | None = None
    """Of the daemon."""
    phase: str | None = None
    reason: str | None = None
    backends: list[msgspec.Raw] = msgspec.field(default_factory=list)
    """The ``capabilities`` frame of each backend."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--watch", action="store_true", help="go on, a line an event")
    add_socket_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print a snapshot, or every event."""
    directory = arguments.directory or configured_directory()
    try:
        if arguments.watch:
            return _watch(directory, as_json=arguments.json)
        snapshot = _snapshot(directory)
    except (NoDaemonError, ClientError, OSError) as error:
        if not arguments.json:
            hint = "" if isinstance(error, UntrustedServerError) else START
            raise CommandError(str(error), hint=hint) from error
        snapshot = Snapshot(status="unreachable", version=__version__)
    if arguments.json:
        json_line(msgspec.json.encode(snapshot))
    else:
        _print(snapshot)
    return EXIT_OK if snapshot.status == READY else EXIT_NOT_READY


def _snapshot(directory: Path | None) -> Snapshot:
    """Read the frames of the present state: capabilities, then the lifecycle."""
    backends: list[msgspec.Raw] = []
    version: str | None = None
    for frame, status in watch_status(directory, timeout_s=ANSWER_S):
        if status.status != "capabilities":
            return Snapshot(
                status=status.status,
                version=__version__,
                daemon_version=version,
                phase=status.phase,
                reason=status.reason,
                backends=backends,
            )
        version = status.daemon_version
        backends.append(msgspec.Raw(frame))
    raise NoDaemonError("the daemon closed the admin socket")


def _watch(directory: Path | None, *, as_json: bool) -> int:
    for frame, status in watch_status(directory):
        if as_json:
            json_line(frame)
        else:
            line(_sentence(status))
    return EXIT_NOT_READY  # it ended, so the daemon is gone, or we were too slow


def _sentence(status: AnyStatus) -> str:
    words = (status.status, status.phase, status.backend, status.path, status.reason)
    return " ".join(word for word in words if word)


def _print(snapshot: Snapshot) -> None:
    line(
        _sentence(
            AnyStatus(
                status=snapshot.status, phase=snapshot.phase, reason=snapshot.reason
            )
        )
    )
    line(
        f"version {snapshot.daemon_version or 'unknown'}, this command {snapshot.version}"
    )
    for raw in snapshot.backends:
        able = msgspec.json.decode(raw)
        abilities = ["text"] if able.get("generate", True) else []
        abilities += [name for name in ABILITIES if able.get(name)]
        line(
            f"backend {able.get('backend', 'unknown')}: model {able.get('model', 'unknown')}, "
            f"context {able.get('n_ctx', 'unknown')}, {able.get('accelerator', 'unknown')}, "
            f"gpu_layers {able.get('gpu_layers', 'unknown')}, {' '.join(abilities)}"
        )
