"""systemd's socket units, from the table of surfaces, and the lists of them in services."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from inferd.surfaces import ADMIN, SURFACES, Surface
from tools.documents.markdown import UnreadableError

SOCKETS = "inferd*.socket"
BY_HAND: Final = ("inferd-bridge.socket", "inferd-bridge-helper.socket")
"""The HTTP bridge's and its helper's, which are no surfaces of the daemon."""
LISTS: Final = ("Requires", "After", "Sockets")
"""The settings of a service that name all sockets, at their ends."""
SOCKET_NAME: Final = r"inferd[a-z0-9_-]*(?:@%i)?\.socket"


class Manager(NamedTuple):
    """Where units are for, which says what differs between them."""

    folder: str
    """Below ``systemd``."""
    service: str
    at: str = ""
    """Between a unit's stem and its suffix: an instance's name."""
    called: str = "inferd"
    directory: str = "/run/inferd"
    """Of the sockets."""
    is_system: bool = True


MANAGERS: Final = (
    Manager("", "inferd.service"),
    Manager("", "inferd@.service", "@%i", "inferd %i", "/run/inferd/%i"),
    Manager("user", "inferd.service", directory="%t/inferd", is_system=False),
)


def unit_texts(
    root: Path, surfaces: Sequence[Surface] = SURFACES
) -> Mapping[Path, str]:
    """Write the socket units, and put their names into the services that are there.

    Args:
        root: the directory ``systemd``, with the services.
        surfaces: a unit each; the first one's starts and stops the others.

    Raises:
        UnreadableError: a service does not name sockets where it should.
    """
    texts: dict[Path, str] = {}
    for manager in MANAGERS:
        folder = root / manager.folder
        names = socket_names(manager, surfaces)
        for surface, name in zip(surfaces, names, strict=True):
            file = folder / name.replace("%i", "")
            texts[file] = socket_text(surface, manager, names)
        service = folder / manager.service
        texts[service] = service_text(service, names)
    return texts


def socket_names(manager: Manager, surfaces: Sequence[Surface]) -> list[str]:
    """List the names of the units, as other units write them."""
    stems = ["inferd", *(f"inferd-{surface.name}" for surface in surfaces[1:])]
    return [f"{stem}{manager.at}.socket" for stem in stems]


def socket_text(surface: Surface, manager: Manager, names: Sequence[str]) -> str:
    """Write the unit of one socket.

    Args:
        surface: whose socket it is.
        manager: whose unit it is.
        names: of all units; the first is the one that starts the others.
    """
    own = f"inferd-{surface.name}{manager.at}.socket"
    is_first = own not in names
    others = " ".join(names[1:])
    sections = {
        "Unit": [
            f"Description={manager.called}: {surface.title}",
            "Documentation=file:///opt/inferd/current/share/README.md",
            *(
                ["# the other sockets start and stop with this one", f"Wants={others}"]
                if is_first
                else [f"PartOf={names[0]}"]
            ),
        ],
        "Socket": socket_settings(surface, manager),
        "Install": [
            "WantedBy=sockets.target",
            *([f"Also={others}"] if is_first else []),
        ],
    }
    blocks = ["\n".join([f"[{name}]", *lines]) for name, lines in sections.items()]
    return "\n\n".join(blocks) + "\n"


def socket_settings(surface: Surface, manager: Manager) -> list[str]:
    """Write the section of a socket: where it is, and who may use it."""
    system = [f"SocketGroup={surface.unit_group}"] if manager.is_system else []
    lock = [
        "# The directory belongs to root, so the daemon cannot create its lock there itself.",
        (
            "ExecStartPost=/usr/bin/install --owner=inferd --group=inferd --mode=0600 "
            f"/dev/null {manager.directory}/inferd.lock"
        ),
    ]
    return [
        f"ListenStream={manager.directory}/{surface.socket}",
        f"FileDescriptorName={surface.fd_name}",
        f"SocketMode={surface.mode:04o}",
        *system,
        f"DirectoryMode={'0755' if manager.is_system else '0700'}",
        "Backlog=1024",
        "RemoveOnStop=yes",
        f"Service={manager.service.replace('@', manager.at)}",
        *(lock if manager.is_system and surface is ADMIN else []),
    ]


def service_text(service: Path, names: Sequence[str]) -> str:
    """Put the names of all sockets into a service.

    Raises:
        UnreadableError: one of ``LISTS`` is not there, or names no socket.
    """
    text = service.read_text(encoding="utf-8")
    for setting in LISTS:
        pattern = rf"^({setting}=(?:\S+ )*?){SOCKET_NAME}(?: {SOCKET_NAME})*$"
        text, n = re.subn(pattern, rf"\g<1>{' '.join(names)}", text, flags=re.MULTILINE)
        if n != 1:
            raise UnreadableError(f"{service}: {setting}= does not end with sockets")
    return text


def units_in(root: Path) -> list[Path]:
    """List the socket units that there are, but for those that are written by hand."""
    return sorted(path for path in root.rglob(SOCKETS) if path.name not in BY_HAND)
