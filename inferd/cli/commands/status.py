"""inferd status: show the state of the daemon and its backends."""

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from inferd import __version__
from inferd.cli.connect import (
    ADMIN_TIMEOUT_S,
    add_socket_argument,
    configured_directory,
)
from inferd.cli.console import EXIT_NOT_READY, EXIT_OK, CommandError
from inferd.cli.unreachable import (
    connection_hint,
    denied_path,
    find_stopped,
)
from inferd.client.discovery import NoDaemonError
from inferd.client.exchange import ClientError
from inferd.client.sync import READY, ExchangeBounds, watch_status
from inferd.service.lock import LockState, lock_holder
from inferd.service.units import service_of, unit_state
from inferd.surfaces import inference_surfaces
from inferd.terminal import print_json, print_line
from inferd.wire.status import AnyStatus

UNREACHABLE: Final = "unreachable"
_SILENT: Final = f"the daemon has sent no status within {ADMIN_TIMEOUT_S:g} s"

CAPABILITIES: Final = (
    *("v2", "vision", "audio", "tools", "thinking"),
    *("embed", "rerank", "transcribe"),
)
"""Boolean fields of a ``capabilities`` frame; the names of those that are true are printed."""


class Snapshot(msgspec.Struct, kw_only=True):
    """The output of ``inferd status --json``."""

    status: str
    """``ready`` or another lifecycle status; ``stopped`` or ``failed`` for a service that a
    client would start; ``running`` where only that is known; else ``unreachable``."""
    version: str
    """Version of this command."""
    daemon_version: str | None = None
    """Version of the daemon."""
    phase: str | None = None
    reason: str | None = None
    backends: list[msgspec.Raw] = msgspec.field(default_factory=list)
    """The ``capabilities`` frame of each backend."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--watch", action="store_true", help="keep running, and print a line per event"
    )
    add_socket_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print a snapshot, or with ``--watch`` every event."""
    directory, refusal = arguments.directory, None
    if directory is None:
        directory, refusal = _find_directory()
    try:
        snapshot = _stopped(directory)
        if snapshot is None and arguments.watch:
            return _watch(directory, as_json=arguments.json)
        snapshot = snapshot or _snapshot(directory)
    except (NoDaemonError, ClientError, OSError) as error:
        snapshot = _known_without_access(error)
        if snapshot.status == UNREACHABLE and not arguments.json:
            if refusal is not None:
                raise refusal from error
            if isinstance(error, TimeoutError):
                raise CommandError(_SILENT, hint="inferd doctor") from error
            raise CommandError(str(error), hint=connection_hint(error)) from error
    if arguments.json:
        print_json(msgspec.json.encode(snapshot))
    else:
        _print(snapshot)
    return EXIT_OK if snapshot.status == READY else EXIT_NOT_READY


def _find_directory() -> tuple[Path | None, CommandError | None]:
    """Read the directory from the configuration; of an invalid one return the error.

    A daemon that does not start for its configuration has to have a status all the same.
    """
    try:
        return configured_directory(), None
    except CommandError as error:
        return None, error


def _stopped(directory: Path | None) -> Snapshot | None:
    """Describe a service that connecting would start; ``None`` if it would start none."""
    found = find_stopped(directory)
    if found is None:
        return None
    service, state = found
    if reason := state.failure:
        return Snapshot(
            status="failed", version=__version__, reason=f"{service.unit}: {reason}"
        )
    return Snapshot(
        status="stopped",
        version=__version__,
        reason=f"{service.unit}; the next request starts it",
    )


def _known_without_access(error: Exception) -> Snapshot:
    """Describe a daemon whose admin socket this user may not use, as far as possible."""
    unreachable = Snapshot(status=UNREACHABLE, version=__version__)
    denied = denied_path(error)
    if denied is None:
        return unreachable
    directory = denied.parent
    usable = [
        surface.socket
        for surface in inference_surfaces()
        if os.access(directory / surface.socket, os.R_OK | os.W_OK)
    ]
    if not usable:
        return unreachable
    service = service_of(directory)
    state = unit_state(service) if service is not None else None
    if state is not None and state.active == "active" and state.status in ("", READY):
        status = READY
    elif lock_holder(directory).state is LockState.HELD:
        status = "running"
    else:
        return unreachable
    return Snapshot(
        status=status,
        version=__version__,
        reason=f"open to this user: {', '.join(usable)}; for more: sudo inferd status",
    )


def _snapshot(directory: Path | None) -> Snapshot:
    """Read the frames of the current state: capabilities, then the lifecycle status."""
    backends: list[msgspec.Raw] = []
    version: str | None = None
    for frame, status in watch_status(
        directory, bounds=ExchangeBounds(ADMIN_TIMEOUT_S)
    ):
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
            print_json(frame)
        else:
            print_line(_sentence(status))
    return EXIT_NOT_READY  # the daemon ended, or dropped this listener as too slow


def _sentence(status: AnyStatus) -> str:
    parts = (status.status, status.phase, status.backend, status.path, status.reason)
    return " ".join(part for part in parts if part)


def _print(snapshot: Snapshot) -> None:
    print_line(
        _sentence(
            AnyStatus(
                status=snapshot.status, phase=snapshot.phase, reason=snapshot.reason
            )
        )
    )
    print_line(
        f"version {snapshot.daemon_version or 'unknown'}, this command {snapshot.version}"
    )
    for raw in snapshot.backends:
        fields = msgspec.json.decode(raw)
        if fields.get("is_unread"):
            unread = "a model of the store that no request has named yet"
            print_line(
                f"backend {fields.get('backend', 'unknown')}: unloaded, {unread}"
            )
            continue
        names = ["text"] if fields.get("generate", True) else []
        names += [name for name in CAPABILITIES if fields.get(name)]
        aliases = fields.get("aliases")
        also = f" (also {', '.join(aliases)})" if aliases else ""
        state = f"{fields['state']}, " if "state" in fields else ""
        print_line(
            f"backend {fields.get('backend', 'unknown')}{also}: {state}"
            f"model {fields.get('model', 'unknown')}, "
            f"context {fields.get('n_ctx', 'unknown')}, "
            f"{_computing(fields)}, {' '.join(names)}"
        )
        if isinstance(budget := fields.get("budget"), dict):
            print_line(f"  left of its budget: {_budget(budget)}")
        if choice := fields.get("model_choice"):
            print_line(f"  chosen at the start: {choice}")


def _budget(left: Mapping[str, object]) -> str:
    """Describe what is left of a budget."""
    parts = (
        ("requests_left", "requests of this minute"),
        ("tokens_left", "tokens of today"),
    )
    return ", ".join(f"{left[key]} {what}" for key, what in parts if key in left)


def _computing(fields: Mapping[str, object]) -> str:
    """Describe what computes the answers of a backend."""
    if not fields.get("remote"):
        layers = fields.get("gpu_layers", "unknown")
        return f"{_accelerator(fields)}, gpu_layers {layers}"
    return "remote, by name only" if fields.get("by_name_only") else "remote"


def _accelerator(fields: Mapping[str, object]) -> str:
    """Describe the accelerator of a backend: its kind, its names, its memory."""
    kind, name = fields.get("accelerator", "unknown"), fields.get("device_name")
    if not name:
        return f"{kind}"
    match fields.get("vram_free_bytes"), fields.get("vram_total_bytes"):
        case int(free), int(total):
            memory = f", {free >> 20} of {total >> 20} MiB free after loading"
        case _:
            memory = ""
    return f"{kind} ({name}{memory})"
