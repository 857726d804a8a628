"""Why a command reaches no daemon, and what to type then; connects to nothing."""

import grp
import os
import pwd
from pathlib import Path
from typing import Final

from inferd.cli.console import CommandError
from inferd.client.discovery import NoDaemonError
from inferd.client.peer_check import UntrustedServerError
from inferd.paths import SYSTEM_DIRECTORY, client_directories
from inferd.service.units import (
    SYSTEM,
    UNIT_FILES,
    SystemdService,
    UnitState,
    stopped_service,
)
from inferd.surfaces import INFER

START_HINT: Final = "inferd serve"
"""The hint when no daemon runs."""
OPERATOR_HINT: Final = "the socket is for operators; as root, try it with: sudo"
"""The hint at a socket that no group may use."""
_GROUP_MAY_WRITE: Final = 0o020


def connection_hint(error: Exception) -> str:
    """Return what to type after a connection failed; empty if nothing helps."""
    if isinstance(error, UntrustedServerError):
        return ""
    tried = error.tried if isinstance(error, NoDaemonError) else {}
    if denied := denied_path(error):
        first = denied.with_name(INFER.socket)
        has_none = first.exists() and not os.access(first, os.R_OK | os.W_OK)
        return permission_hint(first if has_none else denied)
    is_installed = (UNIT_FILES / SYSTEM.unit).exists()
    if is_installed and any(path.parent == SYSTEM_DIRECTORY for path in tried):
        return f"sudo systemctl enable --now {SYSTEM.socket_unit} {SYSTEM.unit}"
    return START_HINT


def denied_path(error: Exception) -> Path | None:
    """Return the first socket that exists and that this user may not use, if any."""
    if not isinstance(error, NoDaemonError):
        return None
    denied = (
        path for path, why in error.tried.items() if isinstance(why, PermissionError)
    )
    return next(denied, None)


def permission_hint(path: Path) -> str:
    """Return what gives this user the right to use a socket."""
    try:
        info = path.stat()
        group = grp.getgrgid(info.st_gid)
        user = pwd.getpwuid(os.geteuid()).pw_name
    except (OSError, KeyError):
        return f"ls -ld {path.parent} {path}"
    if group.gr_gid == 0 or not info.st_mode & _GROUP_MAY_WRITE:
        return OPERATOR_HINT
    if user in group.gr_mem:
        return f"log in again, or run: newgrp {group.gr_name}"
    return f"sudo usermod --append --groups {group.gr_name} {user}; then log in again"


def refuse_stopped(directory: Path | None) -> None:
    """Refuse to start a service by asking it something.

    Args:
        directory: of the sockets; ``None`` for the default ones.

    Raises:
        CommandError: connecting would start a service that is stopped.
    """
    found = find_stopped(directory)
    if found is not None:
        service, state = found
        reason = state.failure
        outcome = f"has failed: {reason}" if reason else "is stopped"
        raise CommandError(f"{service.unit} {outcome}", hint=service.systemctl("start"))


def find_stopped(directory: Path | None) -> tuple[SystemdService, UnitState] | None:
    """Find the service that connecting would start; ``None`` if it would start none."""
    return stopped_service([directory] if directory else client_directories())
