"""The configuration in force, and its application to a running daemon."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import structlog

from inferd.config.settings import BackendSettings, Config, ConfigError
from inferd.limits.server import MAX_MEDIA_FILES
from inferd.routing import ModelNames
from inferd.server.admin.reload import ReloadResult, compare_configs, merge_config
from inferd.server.connection.deps import ConnectionDeps
from inferd.server.connection.limit import ConnectionLimit
from inferd.server.identity.access import Access, load_access
from inferd.server.identity.mapping import Identities
from inferd.server.identity.subuid import load_identities
from inferd.server.listen.acceptor import Acceptor
from inferd.server.listen.fd_budget import (
    FdAllocation,
    allocate_fds,
    fd_limit,
    passed_fd_limit,
    presize_fd_table,
)
from inferd.server.loading.store_state import n_store_workers
from inferd.server.queue.requests import RequestQueue
from inferd.server.telemetry.log import set_level
from inferd.surfaces import SURFACES, Surface

log = structlog.get_logger("daemon")


def no_config_file() -> Config:
    """Fail to read the configuration of a daemon that was made without a file.

    Raises:
        ConfigError: always.
    """
    raise ConfigError("there is no configuration file to read again")


@dataclass
class RunningConfig:
    """The configuration in force, and the parts of the daemon that it applies to.

    Args:
        config: the configuration in force.
        acceptor: gets the access rules and identities.
        deps: get the limits and identities.
        admin_limit: gets the limit of admin connections.
        queue: gets the limits of the queue.
        n_backends: number of backends, which need descriptors.
        surfaces: whose sockets the access rules are for.

    Raises:
        ConfigError: a configured user or group does not exist.
    """

    config: Config
    acceptor: Acceptor
    deps: ConnectionDeps
    admin_limit: ConnectionLimit
    queue: RequestQueue
    n_backends: int
    surfaces: Sequence[Surface] = SURFACES
    names: ModelNames = field(default_factory=ModelNames)
    """The names that requests may give to backends; it gets their aliases."""

    def __post_init__(self) -> None:
        self._set_access(load_access(self.config.access, self.surfaces))
        self._set_identities(load_identities(self.config.users))
        self.take_aliases(self.config.backend)

    def take_aliases(self, backends: Sequence[BackendSettings]) -> None:
        """Set the names by which requests may ask for backends, besides those of their own."""
        self.names.replace({each.name: each.aliases for each in backends})

    def check(self, new: Config) -> None:
        """Check that a new configuration can be applied.

        Raises:
            ConfigError: it cannot.
        """
        merged = merge_config(self.config, new, self.config.backend)
        load_access(merged.access, self.surfaces)
        load_identities(merged.users)
        names = {each.name for each in (*self.config.backend, *new.backend)}
        n_backends = len(names) + n_store_workers(new.models)
        self._allocate(merged, n_backends)

    def apply(
        self, new: Config, backends: Sequence[BackendSettings] | None = None
    ) -> ReloadResult:
        """Apply those settings of a new configuration that can change.

        Requests that run or wait, and open connections, are not affected.

        Args:
            new: the new configuration.
            backends: those that are in force from now on; by default as before.

        Raises:
            ConfigError: the new configuration is invalid; nothing has changed.
        """
        backends = self.config.backend if backends is None else backends
        n_backends = len(backends) + n_store_workers(new.models)
        merged = merge_config(self.config, new, backends)
        access = load_access(merged.access, self.surfaces)
        allocation = self._allocation_for(merged, n_backends)
        identities = load_identities(merged.users)
        reloaded = compare_configs(self.config, merged, new)
        self.n_backends = n_backends
        if merged.log.level != self.config.log.level:
            set_level(merged.log.level)
        self.config = merged
        self._set_access(access)
        self._set_identities(identities)
        self.deps.limits = merged.limits
        self.deps.line_limiter.limit = merged.limits.max_large_lines
        self.deps.output_quota.max_bytes = merged.limits.max_unread_bytes
        self.deps.media_quota.reconfigure(merged.limits)
        self.deps.media_quota.gateway_weight = merged.admission.gateway_weight
        self.queue.reconfigure(merged.admission)
        self.take_aliases(merged.backend)
        self._set_fd_limits(allocation)
        return reloaded

    def allocate_fds(self) -> None:
        """Set the limits of connections and media files that the descriptors allow.

        Raises:
            ConfigError: there are not enough descriptors to serve any client.
        """
        n_files = fd_limit()
        allocation = self._allocation_for(self.config, self.n_backends)
        presize_fd_table(n_files, allocation, n_backends=self.n_backends)
        self._set_fd_limits(allocation)
        self.deps.fd_quota.max_fds = passed_fd_limit(n_files)

    def _set_access(self, access: Access) -> None:
        """Set who may connect, and whose next requests may name a principal."""
        self.acceptor.access = access
        self.deps.gateways.set_uids(access.gateways)

    def _set_identities(self, identities: Identities) -> None:
        """Set how new connections are mapped to users."""
        self.acceptor.identities = identities
        self.deps.identities = identities

    def _set_fd_limits(self, allocation: FdAllocation) -> None:
        self.deps.connection_limit.max_connections = allocation.clients
        self.admin_limit.max_connections = allocation.admin_clients
        self.deps.media_quota.limit_files(allocation.media)

    def _allocation_for(self, config: Config, n_backends: int) -> FdAllocation:
        wanted, allocation = self._allocate(config, n_backends)
        if allocation != wanted:
            log.warning(
                "connections.lowered",
                max_connections=allocation.clients,
                max_admin_connections=allocation.admin_clients,
                max_media=allocation.media,
                open_files=fd_limit(),
            )
        return allocation

    def _allocate(
        self, config: Config, n_backends: int
    ) -> tuple[FdAllocation, FdAllocation]:
        """Compute what is wanted, and what the descriptors allow of it."""
        wanted = FdAllocation(
            config.limits.max_connections,
            config.limits.max_admin_connections,
            MAX_MEDIA_FILES,
        )
        try:
            return wanted, allocate_fds(fd_limit(), wanted, n_backends=n_backends)
        except ValueError as error:
            raise ConfigError(str(error)) from error
