"""Who asks, in numbers and names: whose share a request uses, and whose data it has."""

from typing import Final, NamedTuple

from inferd.backend.job import NO_UID

_NAME_BITS: Final = 45
"""Bits of a principal's number: at a thousand new names a second they last a thousand years."""
_FIRST_GATEWAY: Final = -(2**62)
"""Owner id of the first gateway itself: below those of all other users."""
_GATEWAYS_END: Final = -(2**61)
"""The owner id after those of all gateways and principals, which are 2**16 gateways."""


class Caller(NamedTuple):
    """A user, and where the user is a gateway, the principal for whom it asks.

    Shares of every limit go by user first, and by principal among those of a user.
    """

    user: int = NO_UID
    principal: str = ""
    """Empty for what a user asks itself."""


NO_CALLER: Final = Caller()
"""Who asks for what is the daemon's own."""


def owner_of(gateway: int, principal: int) -> int:
    """Return the owner id of what a gateway's principal asks.

    Args:
        gateway: its number, from 0; no two gateways have the same.
        principal: its number, from 1; 0 for what the gateway asks itself. Only a principal that
            may reuse another's data has the same.
    """
    return _FIRST_GATEWAY + (gateway << _NAME_BITS) + principal


def is_principal(owner: int) -> bool:
    """Tell whether an owner is a gateway or one of its principals."""
    return owner < _GATEWAYS_END


def sharer_of(owner: int) -> int:
    """Return the id whose share of memory and time an owner uses.

    All principals of a gateway use that of the gateway, so that names multiply nothing. Other
    owners below ``NO_UID`` are unmapped users, and uids that count as one user: they use one
    share together.
    """
    if is_principal(owner):
        return owner >> _NAME_BITS << _NAME_BITS
    return max(owner, NO_UID)
