"""Who may come in by which socket, of those whom its mode lets in."""

import grp
import os
import pwd
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from inferd.config import AccessRule, AccessSettings, Account, ConfigError
from inferd.paths import (
    ADMIN_SOCKET,
    EMBED_SOCKET,
    INFER_SOCKET,
    INFER_V2_SOCKET,
    RERANK_SOCKET,
)
from inferd.server.peer import Peer

ROOT: Final = 0

SOCKETS: Final[Mapping[str, str]] = {
    "infer": INFER_SOCKET,
    "v2": INFER_V2_SOCKET,
    "embed": EMBED_SOCKET,
    "rerank": RERANK_SOCKET,
    "admin": ADMIN_SOCKET,
}
"""The leaf of the socket that a key is about."""


def is_operator(peer: Peer) -> bool:
    """Tell whether a peer is root or the daemon's own user.

    A rule against them would be for show: they can end the daemon and read its memory.
    A stranger is nobody in particular, also where the daemon itself is one.
    """
    return not peer.stranger and peer.uid in (ROOT, os.getuid())


@dataclass(frozen=True, slots=True)
class Rule:
    """Users and groups, by their numbers."""

    uids: frozenset[int] = frozenset()
    gids: frozenset[int] = frozenset()

    def allows(self, peer: Peer, groups: Callable[[], frozenset[int]]) -> bool:
        """Tell whether it names a peer, or one of its groups."""
        if peer.uid in self.uids or peer.gid in self.gids:
            return True
        return bool(self.gids) and not self.gids.isdisjoint(groups())


NOBODY: Final = Rule()


@dataclass(frozen=True, slots=True)
class Access:
    """The rules of all sockets.

    Args:
        rules: by the leaf of a socket; one that has none is for everybody.
    """

    rules: Mapping[str, Rule] = field(default_factory=lambda: {ADMIN_SOCKET: NOBODY})

    def allows(
        self, leaf: str, peer: Peer, groups: Callable[[], frozenset[int]]
    ) -> bool:
        """Tell whether a peer may use a socket.

        Args:
            leaf: of the socket.
            peer: who has connected.
            groups: finds its supplementary groups; asked where they matter alone.
        """
        rule = self.rules.get(leaf)
        return rule is None or is_operator(peer) or rule.allows(peer, groups)


def resolve(settings: AccessSettings) -> Access:
    """Look users and groups up.

    Raises:
        ConfigError: there is none of a name.
    """
    rules: dict[str, Rule] = {ADMIN_SOCKET: NOBODY}
    for key, leaf in SOCKETS.items():
        setting: AccessRule | None = getattr(settings, key)
        if setting is not None:
            rules[leaf] = _rule(key, setting)
        elif key != "admin" and INFER_SOCKET in rules:
            rules[leaf] = rules[INFER_SOCKET]
    return Access(rules)


def _rule(key: str, rule: AccessRule) -> Rule:
    return Rule(
        uids=_numbers(
            f"access.{key}.uids", rule.uids, lambda name: pwd.getpwnam(name).pw_uid
        ),
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
