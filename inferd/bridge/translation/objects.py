"""The base of the objects in a request."""

from msgspec import Struct


class Strict(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An object of a request: an unknown field is refused."""
