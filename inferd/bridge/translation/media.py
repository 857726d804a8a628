"""Pictures and sound of a request, as its body has them."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class EncodedMedium:
    """A file of a request, which is decoded before the request goes to the daemon."""

    kind: Literal["picture", "sound"]
    data: bytes
    """The file."""
    place: str
    """Of the field that has it, for failures."""
    attachment_id: str
    """By which the daemon's request refers to it."""
