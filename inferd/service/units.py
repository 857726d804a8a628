"""The units of systemd that run a daemon, found by the directory of its sockets."""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from inferd.paths import SYSTEM_DIRECTORY
from inferd.service.lock import LockState, lock_holder
from inferd.service.start_failure import DID_NOT_START
from inferd.surfaces import ADMIN

QUERY_S: Final = 5.0
"""Seconds that systemd gets to answer."""
MAX_INSTANCES: Final = 256
"""Instances that are looked at; each takes a call of ``systemctl``."""
INSTANCE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
"""What an instance may be called: names of files that systemd does not escape."""
UNIT_FILES: Final = Path("/etc/systemd/system")
CONFIGURATIONS: Final = Path("/etc/inferd")
_BOOTED: Final = Path("/run/systemd/system")


class UnknownInstanceError(Exception):
    """No instance can have this name; one line."""


class SystemdService(NamedTuple):
    """A service whose daemon serves a directory."""

    unit: str
    directory: Path
    """Of the sockets and the lock."""
    configuration: Path | None
    """Its file; ``None`` for the default ones of its user."""
    is_user: bool = False
    """Whether it belongs to the systemd of this user, not to that of the machine."""

    @property
    def socket_unit(self) -> str:
        """The unit of its first socket, which starts the others."""
        return f"{self.unit.removesuffix('.service')}.socket"

    def systemctl(self, verb: str) -> str:
        """Write the command that does something to the service."""
        prefix = "systemctl --user" if self.is_user else "sudo systemctl"
        return f"{prefix} {verb} {self.unit}"

    @property
    def journal(self) -> str:
        """The command that shows its log."""
        option = "--user " if self.is_user else ""
        return f"journalctl {option}-u {self.unit.removesuffix('.service')} -n 20"


SYSTEM: Final = SystemdService(
    "inferd.service", SYSTEM_DIRECTORY, CONFIGURATIONS / "config.toml"
)
BRIDGE: Final = SystemdService(
    "inferd-bridge.service", Path("/run/inferd-bridge"), SYSTEM.configuration
)
"""The HTTP bridge of the machine, a client of the daemon."""


def instance(name: str) -> SystemdService:
    """Return a named instance of the machine's service.

    Raises:
        UnknownInstanceError: the name is not one that a file and a unit can have.
    """
    if not INSTANCE.fullmatch(name):
        raise UnknownInstanceError(
            f"{name!r} is not the name of an instance: letters, digits, _, - and ."
        )
    return SystemdService(
        f"inferd@{name}.service",
        SYSTEM_DIRECTORY / name,
        CONFIGURATIONS / f"{name}.toml",
    )


def service_of(
    directory: Path, environ: Mapping[str, str] | None = None
) -> SystemdService | None:
    """Return the service that the units of this project have for a directory, if any.

    Args:
        directory: of the sockets.
        environ: has the ``XDG_RUNTIME_DIR`` of this user.
    """
    environ = os.environ if environ is None else environ
    if directory == SYSTEM_DIRECTORY:
        return SYSTEM
    if directory.parent == SYSTEM_DIRECTORY and INSTANCE.fullmatch(directory.name):
        return instance(directory.name)
    runtime = environ.get("XDG_RUNTIME_DIR")
    if runtime and directory == Path(runtime) / "inferd":
        return SystemdService("inferd.service", directory, None, is_user=True)
    return None


class UnitState(NamedTuple):
    """The state of a service, as systemd has it."""

    load: str
    """``loaded``, or why there is no such unit."""
    active: str
    """``active``, ``activating``, ``inactive``, ``failed``, …"""
    sub: str
    result: str
    """``success``, or how it failed last."""
    exit_status: str
    """Of the daemon that ended last."""
    status: str
    """What the daemon has reported last."""
    n_restarts: int
    fragment: str
    """Path of the unit."""
    drop_ins: tuple[str, ...]
    needs_reload: bool
    """Whether the unit's files have changed since systemd has read them."""
    is_listening: bool
    """Whether systemd listens at the service's sockets."""
    environment: Mapping[str, str] = MappingProxyType({})
    """What the unit and its drop-ins set."""
    max_files: int | None = None
    """The limit of open files; ``None`` for none."""
    max_memory: int | None = None
    """Bytes of memory that its control group may have; ``None`` for no limit."""
    memory_unit: str = ""
    """The unit that sets this limit: the service, or a slice that it is in."""
    hides_devices: bool = False
    """Whether the unit keeps device nodes from its processes."""
    denies_generated_code: bool = False
    """Whether its processes may not execute memory that they have written."""

    @property
    def failure(self) -> str:
        """Why the service has failed; empty if it has not."""
        if self.active != "failed":
            return ""
        if self.status.startswith(DID_NOT_START):
            return self.status
        return f"{self.result}, exit status {self.exit_status}"

    @property
    def is_stopped(self) -> bool:
        """Whether it does not run, so that a client would start it."""
        return self.active in ("inactive", "failed")


_SERVICE_PROPERTIES: Final = (
    *("LoadState", "ActiveState", "SubState", "Result", "ExecMainStatus"),
    *("StatusText", "NRestarts", "FragmentPath", "DropInPaths", "NeedDaemonReload"),
    *("Environment", "LimitNOFILE", "MemoryMax", "PrivateDevices", "Slice"),
    "MemoryDenyWriteExecute",
)
MAX_SLICES: Final = 16
"""Slices that a service is in, one in another, that are looked at."""


def unit_state(service: SystemdService) -> UnitState | None:
    """Ask systemd for the state of a service; ``None`` if it cannot be asked."""
    known = _show(service, service.unit, _SERVICE_PROPERTIES)
    sockets = _show(service, service.socket_unit, ("ActiveState",))
    if known is None or sockets is None:
        return None
    memory_unit, max_memory = _memory_limit(service, known)
    return UnitState(
        load=known.get("LoadState", ""),
        active=known.get("ActiveState", ""),
        sub=known.get("SubState", ""),
        result=known.get("Result", ""),
        exit_status=known.get("ExecMainStatus", ""),
        status=known.get("StatusText", ""),
        n_restarts=int(known.get("NRestarts") or 0),
        fragment=known.get("FragmentPath", ""),
        drop_ins=tuple(known.get("DropInPaths", "").split()),
        needs_reload=known.get("NeedDaemonReload") == "yes",
        is_listening=sockets.get("ActiveState") == "active",
        environment=_assignments(known.get("Environment", "")),
        max_files=_number(known.get("LimitNOFILE", "")),
        max_memory=max_memory,
        memory_unit=memory_unit,
        hides_devices=known.get("PrivateDevices") == "yes",
        denies_generated_code=known.get("MemoryDenyWriteExecute") == "yes",
    )


def _memory_limit(
    service: SystemdService, known: Mapping[str, str]
) -> tuple[str, int | None]:
    """Find the unit with the least limit of memory: the service, or a slice above it."""
    limits = {service.unit: _number(known.get("MemoryMax", ""))}
    for name in slices_of(known.get("Slice", "")):
        shown = _show(service, name, ("MemoryMax",)) or {}
        limits[name] = _number(shown.get("MemoryMax", ""))
    bounded = [(number, name) for name, number in limits.items() if number is not None]
    number, name = min(bounded, default=(None, ""))
    return name, number


def slices_of(name: str) -> list[str]:
    """List a slice and those above it, as their names tell; at most ``MAX_SLICES``."""
    if not name.endswith(".slice"):
        return []
    parts = [*filter(None, name.removesuffix(".slice").split("-"))][:MAX_SLICES]
    names = ["-".join(parts[:n]) for n in range(len(parts), 0, -1)]
    return [f"{each}.slice" for each in (*names, "-")]


def _assignments(text: str) -> dict[str, str]:
    """Parse what systemd quotes as a shell does."""
    try:
        words = shlex.split(text)
    except ValueError:
        return {}
    pairs = (word.partition("=") for word in words)
    return {name: value for name, _, value in pairs}


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def unit_problems(service: SystemdService) -> list[str]:
    """List what systemd finds wrong with the unit and its drop-ins, one line each."""
    program = shutil.which("systemd-analyze")
    if program is None or not _BOOTED.is_dir():
        return []
    user = ["--user"] if service.is_user else []
    command = [program, *user, "--man=no", "--recursive-errors=no", "verify"]
    try:
        done = subprocess.run(  # noqa: S603  # names that INSTANCE matches
            [*command, service.unit], capture_output=True, check=False, timeout=QUERY_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    lines = done.stderr.decode(errors="replace").splitlines()
    return [line for line in lines if service.unit.removesuffix(".service") in line]


def _show(
    service: SystemdService, unit: str, properties: Sequence[str]
) -> dict[str, str] | None:
    names = [f"--property={name}" for name in properties]
    output = _systemctl(service, "show", *names, "--", unit)
    if output is None:
        return None
    pairs = (line.partition("=") for line in output.splitlines())
    return {name: value for name, _, value in pairs}


def _systemctl(service: SystemdService, *words: str) -> str | None:
    """Run ``systemctl``; ``None`` if there is no systemd, or it does not answer."""
    program = shutil.which("systemctl")
    if program is None or not _BOOTED.is_dir():
        return None
    user = ["--user"] if service.is_user else []
    try:
        done = subprocess.run(  # noqa: S603  # names that INSTANCE matches
            [program, *user, "--no-pager", *words],
            capture_output=True,
            check=False,
            timeout=QUERY_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode(errors="replace") if done.returncode == 0 else None


def installed_services(units: Path = UNIT_FILES) -> list[SystemdService]:
    """List the machine's service, if it is installed, and those instances that are in use.

    An instance is in use if it is enabled or systemd has loaded it. At most
    ``MAX_INSTANCES`` are listed.
    """
    if not (units / SYSTEM.unit).exists():
        return []
    names = {path.name for path in units.glob("*.wants/inferd@*")}
    listed = _systemctl(
        SYSTEM, "list-units", "--all", "--plain", "--no-legend", "inferd@*"
    )
    names |= {line.split()[0] for line in (listed or "").splitlines() if line.split()}
    instances = {match[1] for name in names if (match := _INSTANCE_UNIT.match(name))}
    found = sorted(name for name in instances if INSTANCE.fullmatch(name))
    return [SYSTEM, *map(instance, found[:MAX_INSTANCES])]


_INSTANCE_UNIT: Final = re.compile(r"inferd@(.+)\.(?:socket|service)$")
"""The name of an instance's unit."""


def stopped_service(
    directories: Sequence[Path],
) -> tuple[SystemdService, UnitState] | None:
    """Return the service that a client of these directories would start by connecting.

    Args:
        directories: where the client looks for a daemon, in order.

    Returns:
        The service of the first directory that has sockets, and its state; ``None`` if
        its daemon runs, no service has these sockets, or systemd cannot be asked.
    """
    for directory in directories:
        if not os.path.lexists(directory / ADMIN.socket):
            continue
        service = service_of(directory)
        if service is None or lock_holder(directory).state is LockState.HELD:
            return None
        state = unit_state(service)
        if state is None or not (state.is_listening and state.is_stopped):
            return None
        return service, state
    return None
