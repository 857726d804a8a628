"""Gateways: users whose requests may say who is asking."""

import itertools
from collections import OrderedDict
from collections.abc import Collection
from typing import NamedTuple

from inferd.backend.caller import owner_of
from inferd.backend.gauge import GaugeSpec
from inferd.errors import InferdError, InvalidRequestError, PrincipalDeniedError
from inferd.limits.server import MAX_PRINCIPALS, PRINCIPAL_IDLE_S
from inferd.resolve.options import check_principal
from inferd.server.identity.peer import Peer

__all__ = ["Gateways", "Principal"]


class Principal(NamedTuple):
    """Who asks through a gateway."""

    name: str
    """Empty for the gateway itself."""
    owner: int
    """The owner of what it asks: whose cached prompts it may use."""


NOBODY = (None, None)
"""No principal, and nothing to refuse."""


class Gateways:
    """The users whose requests may name a principal, and the principals who asked lately.

    Bounds:
        Remembers ``MAX_PRINCIPALS`` of each gateway for ``PRINCIPAL_IDLE_S``. One that was
        forgotten gets a new owner id, so none gets the data of another.
    """

    def __init__(self) -> None:
        self._gateways: dict[int, _Gateway] = {}  # by uid
        self._numbers = itertools.count()

    def set_uids(self, uids: Collection[int]) -> None:
        """Change whose requests may name a principal, from the next on."""
        before = self._gateways
        self._gateways = {
            uid: before[uid] if uid in before else _Gateway(next(self._numbers))
            for uid in uids
        }

    def identify(
        self, peer: Peer, name: str | None, *, now: float
    ) -> tuple[Principal | None, InferdError | None]:
        """Return who asks in a request of a peer, or why it may not say so.

        Args:
            peer: who sent it.
            name: who asks, as it says; ``None`` if it does not.
            now: seconds on a monotonic clock.

        Returns:
            The principal, ``None`` for a peer that is no gateway; and the refusal, if the
            request has a principal and may not, or an invalid one.
        """
        gateway = None if peer.overflow_id else self._gateways.get(peer.uid)
        if gateway is None:
            return NOBODY if name is None else (None, PrincipalDeniedError(peer.uid))
        if name is None:
            return gateway.itself, None
        try:
            check_principal(name)
        except InvalidRequestError as error:
            return gateway.itself, error.with_traceback(None)
        return gateway.principal(name, now), None

    def gauge(self) -> GaugeSpec:
        """Describe a gauge of the principals that are remembered."""
        text = "Principals of gateways that asked within an hour."
        return "principals", text, self._count

    def _count(self) -> int:
        return sum(map(len, self._gateways.values()))


class _Gateway:
    """The principals of one gateway, those who asked longest ago first."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.itself = Principal("", owner_of(number, 0))
        self._known: OrderedDict[str, tuple[Principal, float]] = OrderedDict()
        self._numbers = itertools.count(1)

    def __len__(self) -> int:
        """Count the principals that are remembered."""
        return len(self._known)

    def principal(self, name: str, now: float) -> Principal:
        """Return a principal, and remember that it asked."""
        self._forget_idle(now)
        known, _ = self._known.pop(name, (None, now))
        found = known or Principal(name, owner_of(self._number, next(self._numbers)))
        self._known[name] = (found, now)
        if len(self._known) > MAX_PRINCIPALS:
            self._known.popitem(last=False)
        return found

    def _forget_idle(self, now: float) -> None:
        while self._known:
            name, (_, asked_at) = next(iter(self._known.items()))
            if now - asked_at < PRINCIPAL_IDLE_S:
                return
            del self._known[name]
