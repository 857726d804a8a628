"""Two kinds of backends that the daemon does not come with, by a record each.

``echo`` answers in the daemon's process, ``shout`` by a worker with a program of its own.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from inferd.config.kinds.kind import (
    BackendKind,
    Contradiction,
    DoctorPolicy,
    FileFormat,
    InDaemon,
    InWorker,
    RequiredFile,
    Sandbox,
    demands_memory,
    no_contradiction,
    no_credential,
    no_files,
    no_rungs,
)
from inferd.config.kinds.model_paths import FindModel, absolute_path
from inferd.config.kinds.registry import KINDS
from inferd.config.settings import BackendSettings, FilePath, Positive, Sha256


class EchoSettings(
    BackendSettings, frozen=True, kw_only=True, tag="echo", tag_field="kind"
):
    """A backend that greets, and repeats nothing."""

    greeting: str
    """Its answer."""
    is_broken: bool = False
    """It does not get ready."""


def _locate_echo(settings: EchoSettings, _: FindModel) -> EchoSettings:
    return settings


def _same_echo(settings: EchoSettings) -> EchoSettings:
    return settings


ECHO: Final = BackendKind(
    settings=EchoSettings,
    served_by=InDaemon(module="tests.fakes.kinds.echo"),
    extra=None,
    doctor=DoctorPolicy(files=no_files, without_hashes=_same_echo, needs=[]),
    file_format=None,
    contradiction=no_contradiction,
    rungs=no_rungs,
    locate=_locate_echo,
)


class ShoutSettings(
    BackendSettings, frozen=True, kw_only=True, tag="shout", tag_field="kind"
):
    """A backend that answers with a file's text, in capitals."""

    file: FilePath
    """Path of the file."""
    sha256: Sha256 | None = None
    """Required SHA-256 of the file."""
    memory_bytes: Positive = 1_000_000
    """The memory that it demands."""
    is_loud: bool = True
    """False is a contradiction in itself."""


def _contradiction(settings: ShoutSettings) -> Contradiction | None:
    if settings.is_loud:
        return None
    return Contradiction("is_loud", value=False, needs="another kind")


def _locate_shout(settings: ShoutSettings, _: FindModel) -> ShoutSettings:
    path = absolute_path(settings.file, backend=settings.name, key="file")
    return replace(settings, file=path)


def _files(settings: ShoutSettings) -> Sequence[RequiredFile]:
    return [RequiredFile("file", Path(settings.file), settings.sha256)]


def _without_hashes(settings: ShoutSettings) -> ShoutSettings:
    return replace(settings, sha256=None)


def _sandbox(_settings: ShoutSettings) -> Sandbox:
    return Sandbox.CPU


SHOUT: Final = BackendKind(
    settings=ShoutSettings,
    served_by=InWorker(
        program="tests.fakes.kinds.shout",
        sandbox=_sandbox,
        memory=demands_memory,
        credential=no_credential,
    ),
    extra=None,
    doctor=DoctorPolicy(files=_files, without_hashes=_without_hashes, needs=["python"]),
    file_format=FileFormat(b"loud", "text"),
    contradiction=_contradiction,
    rungs=no_rungs,
    locate=_locate_shout,
)

EXTENDED: Final = KINDS.with_kinds(ECHO, SHOUT)
"""The kinds that the daemon comes with, and these."""
