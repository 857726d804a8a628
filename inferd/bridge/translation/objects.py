"""The base of the objects in a request, and values that APIs and the daemon write unlike."""

from typing import Final

from msgspec import Struct

LEAST_TOP_P: Final = 1e-6
"""Stands for 0, which the daemon refuses: one token is left of either."""


class Strict(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An object of a request: an unknown field is refused."""


def to_top_p(given: float | None) -> float | None:
    """Return the daemon's ``top_p``, which is above 0; APIs have 0 as well."""
    return LEAST_TOP_P if given == 0 else given
