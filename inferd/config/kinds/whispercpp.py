"""The kind ``whispercpp``: speech models, run by whisper.cpp in a worker."""

from pathlib import Path
from typing import Annotated, Final

from msgspec import Meta
from msgspec.structs import replace

from inferd.config.kinds.kind import (
    BackendKind,
    DoctorPolicy,
    FileFormat,
    InWorker,
    RequiredFile,
    Sandbox,
    demands_memory,
    no_contradiction,
    no_credential,
    no_rungs,
)
from inferd.config.kinds.model_paths import FindModel, locate_model_files
from inferd.config.settings import ConfigError, FilePath, Sha256, WorkerSettings
from inferd.limits.engine import MAX_THREADS


class WhisperCppSettings(
    WorkerSettings, frozen=True, tag="whispercpp", tag_field="kind"
):
    """A backend that transcribes speech with whisper.cpp."""

    model: FilePath = "embedded:speech"
    """Path of a model file of whisper.cpp, name of a model in the store, or
    ``embedded:speech`` (English), ``embedded:speech-multilingual``."""
    sha256: Sha256 | None = None
    """Required SHA-256 of the file, checked at every load. Default: not checked."""
    n_threads: Annotated[int, Meta(ge=1, le=MAX_THREADS)] | None = None
    """Number of threads. Default: the cores that this process may use."""


def _locate(settings: WhisperCppSettings, find: FindModel) -> WhisperCppSettings:
    located = locate_model_files(
        settings.model,
        backend=settings.name,
        kind=WHISPERCPP.name,
        find=find,
    )
    if located.parts:
        raise ConfigError(
            f"backend {settings.name}: {settings.model} is in {1 + len(located.parts)} "
            "files, and whisper.cpp loads one"
        )
    path, sha256 = located.model
    return replace(settings, model=path, sha256=settings.sha256 or sha256)


def _files(settings: WhisperCppSettings) -> list[RequiredFile]:
    return [RequiredFile("model", Path(settings.model), settings.sha256)]


def _without_hashes(settings: WhisperCppSettings) -> WhisperCppSettings:
    return replace(settings, sha256=None)


def _sandbox(_settings: WhisperCppSettings) -> Sandbox:
    return Sandbox.CPU


WHISPERCPP: Final = BackendKind(
    settings=WhisperCppSettings,
    served_by=InWorker(
        program="inferd.worker.whisper",
        sandbox=_sandbox,
        memory=demands_memory,
        credential=no_credential,
    ),
    extra="whisper",
    doctor=DoctorPolicy(
        files=_files, without_hashes=_without_hashes, needs=["packages"]
    ),
    file_format=FileFormat(b"lmgg", "whisper.cpp model"),
    contradiction=no_contradiction,
    rungs=no_rungs,
    locate=_locate,
)
