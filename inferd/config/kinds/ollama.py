"""The kind ``ollama``: a server with Ollama's own API."""

from typing import Annotated, ClassVar, Final, Literal

from msgspec import Meta

from inferd.config.kinds.kind import (
    BackendKind,
    Contradiction,
    DoctorPolicy,
    InWorker,
    no_files,
    no_rungs,
)
from inferd.config.kinds.remote import (
    RemoteSettings,
    credential_of,
    find_contradiction,
    locate_remote,
    sandbox_of,
    takes_no_memory,
)


class OllamaSettings(RemoteSettings, frozen=True, tag="ollama", tag_field="kind"):
    """A server with Ollama's own API, whose addresses begin with ``/api``."""

    default_path: ClassVar[str] = ""

    generate: bool = True
    """The model there answers; ``false`` for one that only embeds."""
    tools: bool = False
    """The model there calls tools."""
    thinking: bool = False
    """The model there has a reasoning trace, which ``think`` switches."""
    think_level: Literal["low", "medium", "high", "max"] | None = None
    """What ``think`` is where reasoning is asked for, for models that have levels. Default:
    ``true``."""
    structure: bool = False
    """The server holds an answer to a JSON schema in ``format``."""
    vision: bool = False
    """The model there takes images."""
    embed: bool = False
    """The model there turns texts into vectors."""
    n_embd: Annotated[int, Meta(ge=1, le=65536)] | None = None
    """With ``embed``: numbers of its vectors; others are refused. Default: not compared."""
    keep_alive: Annotated[str, Meta(pattern=r"^-?\d{1,9}(ms|s|m|h)?\Z")] | None = None
    """How long the server keeps the model after a request, as ``10m``; ``-1s`` for ever.
    Default: as the server has it."""


def _contradiction(settings: OllamaSettings) -> Contradiction | None:
    if settings.think_level is not None and not settings.thinking:
        return Contradiction("think_level", settings.think_level, "thinking = true")
    if settings.n_embd is not None and not settings.embed:
        return Contradiction("n_embd", settings.n_embd, "embed = true")
    if not settings.generate and not settings.embed:
        return Contradiction("generate", "false", "embed = true")
    return find_contradiction(settings)


def _without_hashes(settings: OllamaSettings) -> OllamaSettings:
    return settings


OLLAMA: Final = BackendKind[OllamaSettings](
    settings=OllamaSettings,
    served_by=InWorker[OllamaSettings](
        program="inferd.worker.remote.ollama",
        sandbox=sandbox_of,
        memory=takes_no_memory,
        credential=credential_of,
    ),
    doctor=DoctorPolicy(files=no_files, without_hashes=_without_hashes, needs=[]),
    file_format=None,
    contradiction=_contradiction,
    rungs=no_rungs,
    locate=locate_remote,
)
