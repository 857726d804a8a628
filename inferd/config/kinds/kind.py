"""The record of a kind of backend: its settings, what serves it, and how it is treated."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from inferd.config.kinds.model_paths import FindModel
from inferd.config.settings import BackendSettings

S_co = TypeVar("S_co", bound=BackendSettings, covariant=True)


class Sandbox(StrEnum):
    """The sandbox that a worker enters before it runs native code or reads a request."""

    CPU = "cpu"
    """No devices and no network; once the worker serves, no files either."""
    ACCELERATED = "accelerated"
    """The devices, files and services of an accelerator's driver; no network."""
    REMOTE = "remote"
    """Connections to one port; no devices, and no files but those of Python and of the C
    library's resolver."""


class MemoryPolicy(StrEnum):
    """The part of a backend in the memory plan."""

    NONE = "none"
    """None: it takes next to no memory, and a worker that demands some is refused."""
    DEMANDED = "demanded"
    """The plan waits for the demand that its worker sends before it loads."""


class RequiredFile(NamedTuple):
    """A file that a backend loads."""

    key: str
    """The setting that names it; the parts of a split model have one in common."""
    path: Path
    sha256: str | None
    """Its required SHA-256, if one is configured."""


class Credential(NamedTuple):
    """Where the key of a backend is; one of both is set."""

    variable: str | None
    """The environment variable that has it."""
    file: str | None
    """The name of a file in ``$CREDENTIALS_DIRECTORY``."""


class FileFormat(NamedTuple):
    """The format of a kind's model files."""

    magic: bytes
    """The first four bytes."""
    name: str
    """In messages."""


class Contradiction(NamedTuple):
    """Settings of one backend that do not go together."""

    key: str
    value: object
    needs: str
    """What the setting needs besides."""


@dataclass(frozen=True, kw_only=True)
class InWorker(Generic[S_co]):
    """A kind whose backends are worker processes, each supervised by an engine."""

    program: str
    """The module that is run as the process: ``python -P -m PROGRAM FD PARENT_PID``."""
    sandbox: Callable[[S_co], Sandbox]
    memory: Callable[[S_co], MemoryPolicy]
    credential: Callable[[S_co], Credential | None]
    """The key that this worker alone gets, as the descriptor after ``PARENT_PID``."""


@dataclass(frozen=True, kw_only=True)
class InDaemon:
    """A kind whose backends answer in the daemon's process and load no native code.

    It has no part in the memory plan.
    """

    module: str
    """The module with ``make_backend(settings, observer)``, which returns a ``Backend``."""


@dataclass(frozen=True, kw_only=True)
class DoctorPolicy(Generic[S_co]):
    """What ``inferd doctor`` checks of a backend, besides that it gets ready."""

    files: Callable[[S_co], Sequence[RequiredFile]]
    """The files that must exist, the model's first; empty if there are none."""
    without_hashes: Callable[[S_co], S_co]
    """Removes the digests of these files, which the doctor compares itself."""
    needs: Sequence[str]
    """Names of the checks of the machine without which it cannot get ready."""


@dataclass(frozen=True, kw_only=True)
class BackendKind(Generic[S_co]):
    """A kind of backend; no part has a default, so that none is forgotten.

    Its functions are pure but for ``locate``, which looks at the files that exist.
    """

    settings: type[S_co]
    """The table of the configuration; its tag is the kind's name."""
    served_by: InWorker[S_co] | InDaemon
    extra: str | None
    """The extra of inferd that it needs; see ``inferd.installation``."""
    doctor: DoctorPolicy[S_co]
    file_format: FileFormat | None
    """The format of its model files, if it has any."""
    contradiction: Callable[[S_co], Contradiction | None]
    """Finds settings that do not go together."""
    rungs: Callable[[S_co], Sequence[S_co]]
    """Lists the settings with each model of a ladder, of which the first that fits into memory
    is served; none if the settings name one model."""
    locate: Callable[[S_co, FindModel], S_co]
    """Replaces references to models by paths of files, given what finds models by name;
    raises ``ConfigError``."""

    @property
    def name(self) -> str:
        """The ``kind`` in the configuration."""
        return str(self.settings.__struct_config__.tag)

    def memory(self, settings: S_co) -> MemoryPolicy:  # type: ignore[misc]  # read only
        """Return the part of a backend in the memory plan."""
        match self.served_by:
            case InWorker(memory=memory):
                return memory(settings)
            case InDaemon():
                return MemoryPolicy.NONE


def no_contradiction(_settings: BackendSettings) -> None:
    """Find nothing: any settings go together."""


def no_rungs(_settings: BackendSettings) -> tuple[()]:
    """List nothing: the settings name one model, or none."""
    return ()


def demands_memory(_settings: BackendSettings) -> MemoryPolicy:
    """Have the memory plan wait for the demand of any backend."""
    return MemoryPolicy.DEMANDED


def no_credential(_settings: BackendSettings) -> None:
    """Have no key."""


def no_files(_settings: BackendSettings) -> tuple[RequiredFile, ...]:
    """List no files."""
    return ()
