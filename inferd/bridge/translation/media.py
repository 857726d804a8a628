"""Pictures and sound of a request, as its body has them: files in base64."""

import binascii
from dataclasses import dataclass
from typing import Final, Literal

from inferd.bridge.translation.failures import BridgeError, Reason, invalid
from inferd.limits.protocol import MAX_ATTACHMENTS
from inferd.wire.blocks import AudioBlock, ImageBlock

_SCHEME: Final = "data:"
_MAX_TYPE_CHARS: Final = 128
"""Characters of a media type and its parameters, of which there are a few."""


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


class MediaOfRequest:
    """The media of one request, collected while its messages are translated.

    Bounds: ``MAX_ATTACHMENTS``, as the daemon's.
    """

    def __init__(self) -> None:
        self.found: list[EncodedMedium] = []

    def picture(self, data: bytes, place: str) -> ImageBlock:
        """Add a picture; return the block that refers to it.

        Args:
            data: a file.
            place: of the field that has it.

        Raises:
            BridgeError: there are too many.
        """
        return ImageBlock(self._add("picture", data, place))

    def sound(self, data: bytes, place: str) -> AudioBlock:
        """Add a recording; otherwise as ``picture``.

        Raises:
            BridgeError: there are too many.
        """
        return AudioBlock(self._add("sound", data, place))

    def _add(self, kind: Literal["picture", "sound"], data: bytes, place: str) -> str:
        if len(self.found) >= MAX_ATTACHMENTS:
            raise invalid(
                place,
                f"a request has at most {MAX_ATTACHMENTS} pictures and recordings",
            )
        name = f"{len(self.found) + 1}"
        self.found.append(EncodedMedium(kind, data, place, name))
        return name


def read_base64(text: str, place: str) -> bytes:
    """Decode base64.

    Raises:
        BridgeError: it is something else.
    """
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError as error:
        raise invalid(place, f"not base64: {error}") from error


def read_picture_url(url: str, place: str) -> bytes:
    """Return the file that a ``data:`` address of a picture has in it.

    Raises:
        BridgeError: it is another address: the bridge fetches nothing.
    """
    if url[: len(_SCHEME)].lower() != _SCHEME:
        raise not_fetched(place)
    comma = url.find(",", 0, len(_SCHEME) + _MAX_TYPE_CHARS)
    kind, *parameters = url[len(_SCHEME) : max(comma, 0)].lower().split(";")
    if comma < 0 or "base64" not in parameters:
        raise invalid(place, "needs the form data:image/png;base64,…")
    if kind and not kind.startswith("image/"):
        raise invalid(place, f"{kind} is no type of a picture")
    return read_base64(url[comma + 1 :], place)


def not_stored(place: str) -> BridgeError:
    """Return the refusal of a picture that was to be stored before."""
    return BridgeError(
        Reason.UNSUPPORTED,
        f"{place}: no files are stored; send the picture itself in base64",
        param=place,
    )


def not_fetched(place: str) -> BridgeError:
    """Return the refusal of the address of a picture."""
    return BridgeError(
        Reason.UNSUPPORTED,
        f"{place}: the bridge fetches nothing; send the picture itself in base64",
        param=place,
    )
