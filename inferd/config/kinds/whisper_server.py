"""The kind ``whisper-server``: whisper.cpp's own server, asked by a worker."""

from typing import ClassVar, Final

from inferd.config.kinds.remote import (
    RemoteModel,
    RemoteSettings,
    remote_kind,
)


class WhisperServerSettings(
    RemoteSettings, frozen=True, tag="whisper-server", tag_field="kind"
):
    """The server of whisper.cpp, which transcribes whole recordings."""

    default_path: ClassVar[str] = ""
    model: RemoteModel = "whisper"
    """What clients are told: the server has one model, and does not say which."""


WHISPER_SERVER: Final = remote_kind(
    WhisperServerSettings, "inferd.worker.remote.whisper_server"
)
