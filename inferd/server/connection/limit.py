"""Limit on connections, with a reserve that no single user can exhaust."""

from collections import Counter
from typing import NamedTuple

from inferd.backend.gauge import GaugeSpec
from inferd.limits.server import FEW_CONNECTIONS_DIVISOR, RESERVED_CONNECTIONS_DIVISOR


class ConnectionLease(NamedTuple):
    """A connection that counts towards the limit, until it is released."""

    uid: int
    is_reserved: bool


def n_reserved(max_connections: int) -> int:
    """Compute the reserved connections for a limit, which come on top of it."""
    return -(-max_connections // RESERVED_CONNECTIONS_DIVISOR)


class ConnectionLimit:
    """Limit on connections, shared by any number of sockets.

    One user may have all ordinary connections. When they are in use, reserved ones are for
    users with fewer than an equal share of the limit, each of whom gets an equal share of
    the reserve at most.

    Args:
        max_connections: ordinary connections at once. It may change at any time;
            connections over a lower limit stay.
    """

    def __init__(self, max_connections: int) -> None:
        self.max_connections = max_connections
        self._held: Counter[int] = Counter()
        self._reserved: Counter[int] = Counter()

    @property
    def n_held(self) -> int:
        """Connections at present."""
        return self._held.total()

    def must_close_idle(self, uid: int) -> bool:
        """Tell whether free connections are scarce enough to close a user's idle ones.

        They are closed if the user has at least as many connections as the average user.
        """
        n_free = self.max_connections - self.n_held
        has_many = self._held[uid] * len(self._held) >= self.n_held
        return has_many and n_free * FEW_CONNECTIONS_DIVISOR < self.max_connections

    def gauge(self) -> GaugeSpec:
        """Describe a gauge of the connections."""
        return "connections", "Clients connected.", lambda: self.n_held

    def acquire(self, uid: int) -> ConnectionLease | None:
        """Lease a connection for a user, if the limit allows; release the lease once."""
        is_reserved = self.n_held - self._reserved.total() >= self.max_connections
        if is_reserved and not self._may_use_reserved(uid):
            return None
        self._held[uid] += 1
        self._reserved[uid] += is_reserved
        return ConnectionLease(uid, is_reserved)

    def release(self, lease: ConnectionLease) -> None:
        """Return a lease."""
        self._held[lease.uid] -= 1
        self._reserved[lease.uid] -= lease.is_reserved
        if not self._held[lease.uid]:
            del self._held[lease.uid], self._reserved[lease.uid]

    def _may_use_reserved(self, uid: int) -> bool:
        n_total, n_mine = n_reserved(self.max_connections), self._reserved[uid]
        users = {*self._held, uid}
        holders = {each for each, n in self._reserved.items() if n} | {uid}
        return (
            self._held[uid] < max(1, self.max_connections // len(users))
            and self._reserved.total() < n_total
            and n_mine < max(1, n_total // len(holders))
        )
