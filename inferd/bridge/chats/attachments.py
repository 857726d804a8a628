"""Pictures and recordings that a client sends with a message, and gets back; pure."""

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote

from msgspec import Struct

from inferd.bridge.translation.failures import BridgeError, Reason, invalid
from inferd.bridge.translation.media import read_base64
from inferd.chats.file_types import media_type_of
from inferd.chats.records import FileName, KeptAttachment
from inferd.config.chats import ChatsSettings

_ID_BYTES: Final = 16
_UNNAMED: Final = "file"


class SentAttachment(Struct, frozen=True, kw_only=True):
    """A picture or a recording of a new message."""

    data: str
    """The file, in base64."""
    name: FileName = _UNNAMED


class ImportedAttachment(Struct, frozen=True, kw_only=True):
    """One of an import; without data, as some exports have it, it is left out."""

    data: str | None = None
    name: FileName = _UNNAMED


class AttachedFiles:
    """The files of one request, checked while its messages are read.

    Args:
        settings: the bounds.
    """

    def __init__(self, settings: ChatsSettings) -> None:
        self._settings = settings
        self.found: dict[str, bytes] = {}
        """The files, by the ids of their attachments."""

    def take(
        self, sent: Sequence[SentAttachment | ImportedAttachment], place: str
    ) -> tuple[KeptAttachment, ...]:
        """Return the attachments of a message.

        Args:
            sent: as the request has them.
            place: of the field that has them.

        Raises:
            BridgeError: one is no picture or recording, or there are too many or too large ones.
        """
        n_most = self._settings.max_attachments
        if len(sent) > n_most:
            raise BridgeError(
                Reason.CHAT_LIMIT,
                f"{place}: a message has at most {n_most} pictures and recordings",
                param=place,
            )
        return tuple(
            self._take(each.name, each.data, f"{place}[{number}]")
            for number, each in enumerate(sent)
            if each.data is not None
        )

    def _take(self, name: str, encoded: str, place: str) -> KeptAttachment:
        data = read_base64(encoded, f"{place}.data")
        n_most = self._settings.max_attachment_bytes
        if len(data) > n_most:
            raise BridgeError(
                Reason.CHAT_LIMIT,
                f"{place}.data: has over {n_most} bytes",
                param=f"{place}.data",
            )
        media_type = media_type_of(data)
        if media_type is None:
            raise invalid(
                f"{place}.data",
                "is neither a picture (AVIF, BMP, GIF, JPEG, PNG, WebP) nor a recording (FLAC, "
                "MP3, MP4, Ogg, WAV, WebM)",
            )
        identity = secrets.token_hex(_ID_BYTES)
        self.found[identity] = data
        digest = hashlib.sha256(data).hexdigest()
        return KeptAttachment(
            id=identity,
            name=name,
            media_type=media_type,
            n_bytes=len(data),
            digest=digest,
        )


def file_headers(attachment: KeptAttachment) -> Mapping[str, str]:
    """Return the headers with which a file is sent: a browser that opens it saves it.

    Nothing of it runs where a browser shows it all the same.
    """
    name = quote(attachment.name, safe="")
    return {
        "content-disposition": f"attachment; filename*=UTF-8''{name}",
        "content-security-policy": "default-src 'none'; sandbox",
        "cross-origin-resource-policy": "same-origin",
        "cache-control": "no-store",
    }
