"""Checks of a service: its units, the accounts it needs, what its user may read."""

import grp
import os
import pwd
import stat
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from inferd.bridge.identity.token_file import (
    BRIDGE_GROUP,
    SYSTEM_TOKENS,
    TokenFileError,
    read_tokens,
)
from inferd.client.peer_check import SERVICE_USER
from inferd.config.kinds.kind import RequiredFile
from inferd.config.settings import Config
from inferd.doctor.check import Finding, Verdict, failed, first, ok, warning
from inferd.installation import service_command
from inferd.paths import SYSTEM_MODELS
from inferd.service.units import BRIDGE, SystemdService, UnitState
from inferd.trusted_path import UntrustedError, open_directory

HIDDEN: Final = (Path("/home"), Path("/root"), Path("/run/user"))
"""Directories that the machine's service cannot see: ``ProtectHome=`` of its unit."""
SYSUSERS: Final = Path("/etc/sysusers.d/inferd.conf")
EXITS: Final[Mapping[str, str]] = {
    "200": "its working directory cannot be entered",
    "203": "its program cannot be started",
    "216": "its group does not exist",
    "217": "its user does not exist",
    "218": "its capabilities cannot be set",
    "226": "its file system name space cannot be made",
    "228": "its system call filter cannot be set",
}
"""What systemd's own exit codes mean: the daemon was not started."""
_REMOVED: Final = ("INFERD_", "XDG_")
"""How variables of the caller begin that a service does not have."""


def check_unit(
    service: SystemdService, state: UnitState | None, problems: Sequence[str] = ()
) -> Finding:
    """Check that systemd can run a service, and that it does or will.

    Args:
        service: whose unit it is.
        state: as systemd has it; ``None`` if it does not answer.
        problems: what systemd finds wrong with the unit and its drop-ins.
    """
    return first(_unit_findings(service, state, problems))


def _unit_findings(
    service: SystemdService, state: UnitState | None, problems: Sequence[str]
) -> Iterator[Finding]:
    if state is None:
        yield warning(
            f"systemd does not say how {service.unit} is",
            f"systemctl status {service.unit}",
        )
        return
    if state.load != "loaded":
        yield failed(f"{service.unit} is {state.load}", service_command())
    drop_in = _culprit(state, problems)
    if drop_in and (problems or state.exit_status in EXITS):
        detail = problems[0] if problems else EXITS[state.exit_status]
        yield failed(f"{drop_in}: {detail}", without_drop_in(drop_in, service))
    if state.exit_status in EXITS and not _runs(state):
        yield failed(
            f"{service.unit}: {EXITS[state.exit_status]} "
            f"(exit status {state.exit_status})",
            service_command(),
        )
    if state.needs_reload:
        yield warning(
            f"the files of {service.unit} have changed since systemd has read them",
            f"sudo systemctl daemon-reload; {service.systemctl('restart')}",
        )
    yield _check_state(service, state)


def _check_state(service: SystemdService, state: UnitState) -> Finding:
    if state.failure:
        return failed(f"{service.unit} has failed: {state.failure}", service.journal)
    if not state.is_listening:
        prefix = service.systemctl("enable --now").removesuffix(service.unit)
        return warning(
            f"systemd does not listen at the sockets of {service.unit}",
            f"{prefix}{service.socket_unit} {service.unit}",
        )
    if state.sub == "auto-restart":
        return failed(
            f"{service.unit} ends again and again, {state.n_restarts} times so far: "
            f"{state.result}, exit status {state.exit_status}",
            service.journal,
        )
    if state.is_stopped:
        return ok(f"{service.unit} is stopped; the next request starts it")
    return ok(f"{service.unit} is {state.active} ({state.status or state.sub})")


def _runs(state: UnitState) -> bool:
    return state.active == "active"


def _culprit(state: UnitState, problems: Sequence[str]) -> str:
    """Return the drop-in that a problem names, else the last one; empty for none."""
    for path in state.drop_ins:
        if any(path in problem for problem in problems):
            return path
    return state.drop_ins[-1] if state.drop_ins and not _runs(state) else ""


def without_drop_in(drop_in: str, service: SystemdService) -> str:
    """Write the command that sets a drop-in aside; nothing is deleted."""
    sudo = "" if service.is_user else "sudo "
    reload = "systemctl --user" if service.is_user else "sudo systemctl"
    return (
        f"{sudo}mv {drop_in} {drop_in}.off; {reload} daemon-reload; "
        f"{service.systemctl('restart')}"
    )


def check_bridge(
    state: UnitState | None,
    config: Config,
    tokens: Path | None = None,
    find_group: Callable[[str], grp.struct_group] = grp.getgrnam,
) -> Finding:
    """Check the HTTP bridge of the machine, if it is wanted.

    Args:
        state: of its unit; ``None`` if systemd does not answer.
        config: of the machine's daemon and bridge.
        tokens: the file of tokens; ``None`` for the configured one.
        find_group: finds a group by name.
    """
    return first(_bridge_findings(state, config, tokens, find_group))


def _bridge_findings(
    state: UnitState | None,
    config: Config,
    tokens: Path | None,
    find_group: Callable[[str], grp.struct_group],
) -> Iterator[Finding]:
    if state is not None and not state.is_listening and state.is_stopped:
        yield ok(
            "not enabled; to serve HTTP: "
            f"sudo systemctl enable --now {BRIDGE.socket_unit}"
        )
    try:
        gid = find_group(BRIDGE_GROUP).gr_gid
    except KeyError:
        yield failed(f"the group {BRIDGE_GROUP} does not exist", service_command())
        return
    configured = config.bridge.tokens
    path = tokens or (Path(configured) if configured else SYSTEM_TOKENS)
    add = "sudo inferd bridge token add NAME --system"
    try:
        n_tokens = len(read_tokens(path))
        if not n_tokens:
            yield warning(f"nobody has a token: {path} has none", add)
        status = path.lstat()
    except (TokenFileError, OSError) as error:
        yield failed(str(error), f"sudo ls -l {path}")
        return
    if status.st_gid != gid or not status.st_mode & stat.S_IRGRP:
        yield failed(
            f"{BRIDGE_GROUP} may not read {path}",
            f"sudo chgrp {BRIDGE_GROUP} {path}; sudo chmod 640 {path}",
        )
    gateways = config.access.gateways
    if config.bridge.gateway and BRIDGE_GROUP not in (
        gateways.uids if gateways else ()
    ):
        yield warning(
            f"bridge.gateway is set and access.gateways does not name {BRIDGE_GROUP}: "
            "its requests are refused unless its uid is there",
            "inferd config check",
        )
    found = check_unit(BRIDGE, state)
    tokens_of = f"{n_tokens} tokens"
    yield ok(f"{found.detail}; {tokens_of}") if found.verdict is Verdict.OK else found


def check_accounts(
    find_user: Callable[[str], object] = pwd.getpwnam,
    find_group: Callable[[str], object] = grp.getgrnam,
    sysusers: Path = SYSUSERS,
) -> Finding:
    """Check that the service's user and the group of its sockets exist.

    Args:
        find_user: finds a user by name.
        find_group: finds a group by name.
        sysusers: the file that makes both, which comes with the service.
    """
    missing: list[str] = []
    for kind, find in (("user", find_user), ("group", find_group)):
        try:
            find(SERVICE_USER)
        except KeyError:
            missing.append(f"the {kind} {SERVICE_USER}")
    if missing:
        is_installed = sysusers.exists()
        return failed(
            f"{' and '.join(missing)} {'do' if missing[1:] else 'does'} not exist",
            f"sudo systemd-sysusers {sysusers}; "
            "sudo systemctl restart inferd.socket inferd.service"
            if is_installed
            else service_command(),
        )
    members = ", ".join(grp.getgrnam(SERVICE_USER).gr_mem) or "nobody"
    return ok(f"user and group {SERVICE_USER}; members of the group: {members}")


def check_readable(
    backend: str, files: Sequence[RequiredFile], may_read: Callable[[Path], bool]
) -> Finding:
    """Check that the service sees the files of a model and may read them.

    Args:
        backend: its name.
        files: of its model.
        may_read: tells whether the service's user may read a file.
    """
    bring = (
        "sudo inferd model import --system FILE --name NAME, "
        f"and set model = NAME in [[backend]] {backend}"
    )
    for _, path, _ in files:
        if any(path.is_relative_to(home) for home in HIDDEN):
            return failed(f"{path} is in a directory that services cannot see", bring)
        if not may_read(path):
            return failed(
                f"the user {SERVICE_USER} may not read {path}",
                _opening_hint(path) or bring,
            )
    return ok(f"the user {SERVICE_USER} may read {len(files)} files")


def _opening_hint(path: Path) -> str:
    """Return how to let all read a file; nothing where another user may replace it.

    Root would open another file then, of that user's choice.
    """
    if path.is_symlink():
        return ""
    try:
        os.close(open_directory(path.parent))
    except (OSError, UntrustedError):
        return ""
    return f"sudo chmod o+r {path}; namei -l {path}"


def service_may_read(path: Path) -> bool:
    """Try to read a file with the rights of the service's user; true if not root."""
    if os.geteuid() != 0:
        return True
    try:
        account = pwd.getpwnam(SERVICE_USER)
    except KeyError:
        return True  # another check reports it
    done = subprocess.run(  # noqa: S603  # no shell
        ["/usr/bin/test", "-r", str(path)],
        check=False,
        user=account.pw_uid,
        group=account.pw_gid,
        extra_groups=[],
    )
    return done.returncode == 0


def service_uid(service: SystemdService) -> int:
    """Return the uid of a service's daemon; 0 if its user does not exist."""
    if service.is_user:
        return os.geteuid()
    try:
        return pwd.getpwnam(SERVICE_USER).pw_uid
    except KeyError:
        return 0


@contextmanager
def environment_of(service: SystemdService, state: UnitState | None) -> Iterator[None]:
    """Have the variables that a service has, while inside.

    So paths mean here what they mean to its daemon.
    """
    before = dict(os.environ)
    own = {} if state is None else state.environment
    suffix = service.directory.name if "@" in service.unit else ""
    places = {
        "HOME": "/var/lib/inferd",
        "RUNTIME_DIRECTORY": str(service.directory),
        "LOGS_DIRECTORY": str(Path("/var/log/inferd") / suffix),
        "INFERD_MODELS": str(SYSTEM_MODELS),
    }
    if suffix:
        places["INFERD_CONFIG"] = str(service.configuration)
    if not service.is_user:
        for name in [each for each in os.environ if each.startswith(_REMOVED)]:
            del os.environ[name]
        os.environ.update(places)
    os.environ.update(own)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
