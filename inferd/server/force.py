"""What of the configuration is in force, and may change while the daemon runs."""

from dataclasses import dataclass

import structlog

from inferd.config import Config, ConfigError
from inferd.server.access import resolve
from inferd.server.descriptors import (
    Places,
    n_allowed,
    n_for_media,
    share_out,
    widen_table,
)
from inferd.server.identity import Identities
from inferd.server.limits import MAX_MEDIA_FILES
from inferd.server.log import set_level
from inferd.server.reception import Reception
from inferd.server.reload import Reloaded, compare, merge
from inferd.server.room import Room
from inferd.server.subordinate import load
from inferd.server.surroundings import Surroundings
from inferd.server.turns import Turns

log = structlog.get_logger("daemon")


def nothing_to_read() -> Config:
    """Be the reader of a daemon that was made without a file.

    Raises:
        ConfigError: always.
    """
    raise ConfigError("there is no configuration to read again")


@dataclass
class Force:
    """The configuration, and everything that follows it.

    Args:
        config: what is in force.
        reception: has its rules of access.
        around: has its limits; both know as whom those who connect count.
        listeners: has as many places as it says, as has the room of ``around``.
        turns: has its queue.
        n_backends: for each of which there have to be descriptors.

    Raises:
        ConfigError: a user or a group that it names is not there.
    """

    config: Config
    reception: Reception
    around: Surroundings
    listeners: Room
    turns: Turns
    n_backends: int

    def __post_init__(self) -> None:
        self.reception.access = resolve(self.config.access)
        self._know(load(self.config.users))

    def change(self, new: Config) -> Reloaded:
        """Put in force what can be of another configuration.

        What runs and waits is not touched, and nobody has to leave a place.

        Raises:
            ConfigError: it cannot be used; nothing has changed.
        """
        merged = merge(self.config, new)
        access, places = resolve(merged.access), self._places(merged)
        identities = load(merged.users)
        reloaded = compare(self.config, merged, new)
        if merged.log.level != self.config.log.level:
            set_level(merged.log.level)
        self.config = merged
        self.reception.access = access
        self._know(identities)
        self.around.limits = merged.limits
        self.around.large_lines.n_turns = merged.limits.max_large_lines
        self.around.unread.max_bytes = merged.limits.max_unread_bytes
        self.around.media.resize(merged.limits)
        self.turns.resize(merged.admission)
        self._give(places)
        return reloaded

    def share_out(self) -> None:
        """Have as many places as are configured, or as there are descriptors for.

        Raises:
            ConfigError: there are not enough of them for anybody.
        """
        n_files, places = n_allowed(), self._places(self.config)
        widen_table(n_files, places, n_backends=self.n_backends)
        self._give(places)
        self.around.custody.max_fds = n_for_media(n_files)

    def _know(self, identities: Identities) -> None:
        """Have those who connect from now on count as these say."""
        self.reception.identities = identities
        self.around.identities = identities

    def _give(self, places: Places) -> None:
        self.around.room.n_places = places.clients
        self.listeners.n_places = places.listeners
        self.around.media.bound_files(places.media)

    def _places(self, config: Config) -> Places:
        wanted = Places(
            config.limits.max_connections,
            config.limits.max_admin_connections,
            MAX_MEDIA_FILES,
        )
        n_files = n_allowed()
        try:
            places = share_out(n_files, wanted, n_backends=self.n_backends)
        except ValueError as error:
            raise ConfigError(str(error)) from error
        if places != wanted:
            log.warning(
                "connections.lowered",
                max_connections=places.clients,
                max_admin_connections=places.listeners,
                max_media=places.media,
                open_files=n_files,
            )
        return places
