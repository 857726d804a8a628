"""The check of the configuration: the file, and the users and groups that it names."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from inferd.client.peer_check import SERVICE_USER
from inferd.config.kinds.registry import KindRegistry
from inferd.config.load import config_file, load_config
from inferd.config.settings import Config, ConfigError
from inferd.doctor.check import Finding, failed, ok
from inferd.doctor.service import service_may_read
from inferd.server.identity.access import load_access
from inferd.server.identity.subuid import load_identities
from inferd.service.bind import ListenError, group_id_of
from inferd.service.units import SystemdService


def read_configuration(
    file: Path | None, kinds: KindRegistry, service: SystemdService | None
) -> tuple[Config | None, Finding]:
    """Read the configuration, and say whether the daemon would take it.

    Args:
        file: the configuration; ``None`` for that of this user or the service.
        kinds: the kinds of backends that it may have.
        service: whose configuration it is; ``None`` for this user's daemon.

    Returns:
        The configuration, ``None`` if it cannot be read, and the finding.
    """
    if service is not None and (denied := _unreadable(service)):
        return None, denied
    try:
        config = load_config(file, kinds=kinds)
    except ConfigError as error:
        return None, failed(str(error), _hint(file, service))
    if faults := [*account_faults(config, binds=service is None)]:
        return config, failed("; ".join(faults), _hint(file, service))
    return config, ok(f"backends: {config.served}")


def account_faults(config: Config, *, binds: bool = True) -> Iterator[str]:
    """Describe the users and groups of a configuration that this machine has not.

    Args:
        config: names them.
        binds: whether the daemon makes its sockets itself, whose group has to be there.
    """
    lookups: list[tuple[str, Callable[[], object]]] = [
        ("access: ", lambda: load_access(config.access)),
        ("users: ", lambda: load_identities(config.users)),
    ]
    if binds and (group := config.listen.group) is not None:
        lookups.append(("listen.group: ", lambda: group_id_of(group)))
    for table, look_up in lookups:
        try:
            look_up()
        except (ConfigError, ListenError) as error:
            yield f"{table}{error}"


def _unreadable(service: SystemdService) -> Finding | None:
    """Return the finding for a configuration that the service's user may not read."""
    path = service.configuration
    if path is None or not path.exists() or service_may_read(path):
        return None
    return failed(
        f"the user {SERVICE_USER} may not read {path}",
        f"sudo chmod o+r {path}; {service.systemctl('restart')}",
    )


def _hint(file: Path | None, service: SystemdService | None) -> str:
    """Return what to do with a file that cannot be read, or has an error."""
    if service is not None and service.configuration is not None:
        return _service_hint(service, service.configuration)
    path = _path(file)
    if path is None:
        return "docs/configuration.md has every key"
    if not os.path.lexists(path):
        return f"inferd config init --output {path}"
    return f"correct {path}" if os.access(path, os.R_OK) else f"chmod u+r {path}"


def _service_hint(service: SystemdService, path: Path) -> str:
    if not path.exists():
        return f"sudo install -D --mode=0644 /dev/null {path}"
    if not path.stat().st_mode & 0o004 and os.geteuid() != 0:
        return "sudo inferd doctor --system"
    return f"correct it, then: {service.systemctl('restart')}"


def _path(file: Path | None) -> Path | None:
    """Return the path of the configuration; ``None`` if it is not known."""
    try:
        return config_file(file)
    except ConfigError:
        return None
