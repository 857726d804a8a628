"""The kind ``whisper-server``: whisper.cpp's own server, asked by a worker."""

from typing import ClassVar, Final

from inferd.config.kinds.kind import (
    BackendKind,
    DoctorPolicy,
    InWorker,
    no_files,
    no_rungs,
)
from inferd.config.kinds.remote import (
    RemoteModel,
    RemoteSettings,
    credential_of,
    find_contradiction,
    locate_remote,
    sandbox_of,
    takes_no_memory,
)


class WhisperServerSettings(
    RemoteSettings, frozen=True, tag="whisper-server", tag_field="kind"
):
    """The server of whisper.cpp, which transcribes whole recordings."""

    default_path: ClassVar[str] = ""
    model: RemoteModel = "whisper"
    """What clients are told: the server has one model, and does not say which."""


def _without_hashes(settings: WhisperServerSettings) -> WhisperServerSettings:
    return settings


WHISPER_SERVER: Final = BackendKind[WhisperServerSettings](
    settings=WhisperServerSettings,
    served_by=InWorker[WhisperServerSettings](
        program="inferd.worker.remote.whisper_server",
        sandbox=sandbox_of,
        memory=takes_no_memory,
        credential=credential_of,
    ),
    doctor=DoctorPolicy(files=no_files, without_hashes=_without_hashes, needs=[]),
    file_format=None,
    contradiction=find_contradiction,
    rungs=no_rungs,
    locate=locate_remote,
)
