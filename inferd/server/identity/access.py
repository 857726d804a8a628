"""Access rules: which peers may use which socket, besides the socket's own mode."""

import grp
import os
import pwd
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from inferd.config.settings import AccessRule, AccessSettings, Account, ConfigError
from inferd.server.identity.peer import Peer
from inferd.surfaces import ADMIN, INFER, SURFACES, Surface, inference_surfaces

ROOT: Final = 0


def is_operator(peer: Peer) -> bool:
    """Tell whether a peer is root or the daemon's own user.

    No rule applies to them, as they could kill the daemon and read its memory anyway. A
    peer with the overflow uid is never an operator, even where the daemon itself has that
    uid.
    """
    return not peer.overflow_id and peer.uid in (ROOT, os.getuid())


@dataclass(frozen=True, slots=True)
class Rule:
    """Allowed users and groups, by number."""

    uids: frozenset[int] = frozenset()
    gids: frozenset[int] = frozenset()

    def allows(self, peer: Peer, groups: Callable[[], frozenset[int]]) -> bool:
        """Tell whether the rule names a peer or one of its groups."""
        if peer.uid in self.uids or peer.gid in self.gids:
            return True
        return bool(self.gids) and not self.gids.isdisjoint(groups())


OPERATORS_ONLY: Final = Rule()
"""An empty rule: only operators pass."""


@dataclass(frozen=True, slots=True)
class Access:
    """The rules of all sockets.

    Args:
        rules: by the file name of the socket; a socket without a rule is open to everybody.
        gateways: uids of the users whose requests may name a principal.
    """

    rules: Mapping[str, Rule] = field(
        default_factory=lambda: {ADMIN.socket: OPERATORS_ONLY}
    )
    gateways: frozenset[int] = frozenset()

    def allows(
        self, leaf: str, peer: Peer, groups: Callable[[], frozenset[int]]
    ) -> bool:
        """Tell whether a peer may use a socket.

        Args:
            leaf: the socket's file name.
            peer: the client.
            groups: reads its supplementary groups; called only where a rule depends on
                them.
        """
        rule = self.rules.get(leaf)
        return rule is None or is_operator(peer) or rule.allows(peer, groups)


def load_access(
    settings: AccessSettings, surfaces: Sequence[Surface] = SURFACES
) -> Access:
    """Resolve the names of users and groups to numbers.

    Args:
        settings: have a key for each surface that can have a rule of its own.
        surfaces: all; those that take requests have the rule of ``infer`` by default.

    Raises:
        ConfigError: a name is unknown.
    """
    rules: dict[str, Rule] = {ADMIN.socket: OPERATORS_ONLY}
    if settings.infer is not None:
        shared = _rule(INFER.name, settings.infer)
        rules |= {each.socket: shared for each in inference_surfaces(surfaces)}
    for surface in surfaces:
        setting: AccessRule | None = getattr(settings, surface.name, None)
        if setting is not None:
            rules[surface.socket] = _rule(surface.name, setting)
    gateways = () if settings.gateways is None else settings.gateways.uids
    return Access(rules, uids_of("access.gateways.uids", gateways))


def uids_of(key: str, accounts: Sequence[Account]) -> frozenset[int]:
    """Resolve users to numbers.

    Args:
        key: of the setting that names them.
        accounts: their numbers or names.

    Raises:
        ConfigError: a name is unknown.
    """
    return _numbers(key, accounts, lambda name: pwd.getpwnam(name).pw_uid)


def _rule(key: str, rule: AccessRule) -> Rule:
    return Rule(
        uids=uids_of(f"access.{key}.uids", rule.uids),
        gids=_numbers(
            f"access.{key}.gids", rule.gids, lambda name: grp.getgrnam(name).gr_gid
        ),
    )


def _numbers(
    key: str, accounts: Sequence[Account], look_up: Callable[[str], int]
) -> frozenset[int]:
    numbers: set[int] = set()
    for account in accounts:
        try:
            numbers.add(look_up(account) if isinstance(account, str) else account)
        except (KeyError, ValueError):
            raise ConfigError(
                f"{key} = {account!r}: expected a number, or a name that this system knows"
            ) from None
    return frozenset(numbers)
