"""Files of a release in the system's directories: units, a user, a link, manual pages."""

import os
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from inferd.trusted_path import DIRECTORY, UntrustedError, open_directory
from tools.trusted import FILE, copy_file, replace_link
from tools.wheel import say

LINK = Path("/usr/local/bin/inferd")
SYSTEM_UNITS = Path("/etc/systemd/system")
USER_UNITS = Path("/etc/systemd/user")
DOCUMENTS = Path("/usr/local/share")
"""Where the shells look for completions, and `man` for pages, of what is in /usr/local/bin."""
DOCUMENTED: Final = ("man", "bash-completion", "zsh", "fish")
"""Directories of them in the directory `share` of a release."""
SYSUSERS = Path("/etc/sysusers.d/inferd.conf")
STATE = Path("/var/lib/inferd")
"""Root's directory with that of the service's state and the machine's model store."""
OWN_STATE: Final = "state"
"""The service's own directory in it: `StateDirectory=` of the units."""
UNITS: Final = ("inferd*.socket", "inferd*.service")
"""Instances among them; the sockets first, which would start the service again."""
SERVICES: Final = (
    "inferd.service",
    "inferd@*.service",
    "inferd-bridge.service",
    "inferd-bridge-helper.service",
)


def placed(share: Path) -> dict[Path, Path]:
    """Map destinations of units, manual pages and completions to their sources.

    Args:
        share: that directory of a release; one of an older version has units alone.
    """
    return {**placed_units(share / "systemd"), **placed_documents(share)}


def placed_documents(share: Path) -> dict[Path, Path]:
    """Map destinations of manual pages and completions to their sources."""
    return {
        DOCUMENTS / path.relative_to(share): path
        for name in DOCUMENTED
        for path in (share / name).rglob("*")
        if path.is_file()
    }


def placed_units(sources: Path) -> dict[Path, Path]:
    """Map destinations of units, and of the list of users, to their sources."""
    files = {SYSUSERS: sources / "inferd.sysusers"}
    for directory, units in ((SYSTEM_UNITS, sources), (USER_UNITS, sources / "user")):
        for pattern in UNITS:
            files |= {directory / unit.name: unit for unit in units.glob(pattern)}
    return files


def place_files(share: Path, prefix: Path) -> None:
    """Copy the units, make the user, link the command; copy what documents it.

    Args:
        share: that directory of a release.
        prefix: of all releases.
    """
    for target, source in placed_units(share / "systemd").items():
        place(source, target)
    subprocess.run(["systemd-sysusers", str(SYSUSERS)], check=True)
    take_state_directory(STATE)
    try:
        directory = open_directory(LINK.parent, makes=True)
        replace_link(prefix / "current" / "bin" / "inferd", directory, LINK.name)
        os.close(directory)
    except UntrustedError as error:
        say(f"note: no link in {LINK.parent}: {error}")
    place_documents(share)
    reload_systemd()


def place_documents(share: Path) -> None:
    """Copy manual pages and completions, unless others may change where they belong."""
    for target, source in placed_documents(share).items():
        try:
            place(source, target)
        except UntrustedError as error:
            say(f"note: no manual pages and completions in {DOCUMENTS}: {error}")
            return


def take_state_directory(path: Path) -> None:
    """Make root the owner of the directory above the service's own.

    Versions before gave all of it to the service's user. Nothing in it is opened or followed:
    it is renamed as a whole, and becomes the service's own directory in a new one.
    """
    aside = f".{path.name}-{OWN_STATE}"
    parent = open_directory(path.parent, makes=True)
    try:
        owner = _owner(path.name, parent)
        if owner not in (0, None):
            try:
                os.rename(path.name, aside, src_dir_fd=parent, dst_dir_fd=parent)
            except OSError as error:
                say(f"note: {path} stays the service's: {error.strerror}")
                return
        with suppress(FileExistsError):
            os.mkdir(path.name, 0o755, dir_fd=parent)
        if _owner(aside, parent) is None:
            return
        directory = os.open(path.name, DIRECTORY, dir_fd=parent)
        try:
            os.rename(aside, OWN_STATE, src_dir_fd=parent, dst_dir_fd=directory)
        finally:
            os.close(directory)
    finally:
        os.close(parent)


def _owner(name: str, directory: int) -> int | None:
    """Return the uid of a file's owner, of a link's its own; ``None`` if it is missing."""
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False).st_uid
    except FileNotFoundError:
        return None


def place(source: Path, target: Path) -> None:
    """Write a file into a directory of root's atomically."""
    if target.is_symlink():
        say(f"note: {target} is a link to {target.readlink()}, and stays one")
        return
    directory = open_directory(target.parent, makes=True)
    try:
        opened = os.open(source, FILE)
        try:
            copy_file(opened, directory, target.name)
        finally:
            os.close(opened)
    finally:
        os.close(directory)


def remove_placed(paths: Iterable[Path]) -> None:
    """Remove the files of a release, after stopping its services."""
    for path in sorted(paths):
        if is_booted() and path.parent == SYSTEM_UNITS and "@." not in path.name:
            subprocess.run(["systemctl", "stop", path.name], check=False)
        path.unlink(missing_ok=True)


def remove_units() -> None:
    """Stop and disable the services."""
    if is_booted():
        names = [path.name for path in SYSTEM_UNITS.glob("inferd*")]
        names = sorted(name for name in names if name.endswith((".socket", ".service")))
        subprocess.run(["systemctl", "stop", *UNITS], check=False)
        subprocess.run(["systemctl", "disable", *names], check=False)


def running() -> list[str]:
    """List the services that run."""
    if not is_booted():
        return []
    command = [
        *("systemctl", "list-units", "--plain", "--no-legend"),
        *("--state=active,activating,reloading,deactivating", *SERVICES),
    ]
    listed = subprocess.run(command, capture_output=True, text=True, check=True)
    return [line.split()[0] for line in listed.stdout.splitlines()]


def restart(services: list[str]) -> bool:
    """Restart services, while systemd holds their sockets.

    Returns:
        Whether all started.
    """
    if not services:
        return True
    command = ["systemctl", "restart", *services]
    return subprocess.run(command, check=False).returncode == 0


def is_booted() -> bool:
    """Tell whether systemd manages this machine."""
    return Path("/run/systemd/system").is_dir()


def reload_systemd() -> None:
    """Make systemd read its units again, if it runs."""
    if is_booted():
        subprocess.run(["systemctl", "daemon-reload"], check=True)
