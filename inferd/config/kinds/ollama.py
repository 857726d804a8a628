"""The kind ``ollama``: a server with Ollama's own API."""

from typing import Annotated, ClassVar, Final, Literal

from msgspec import Meta

from inferd.config.kinds.kind import Contradiction
from inferd.config.kinds.remote import (
    RemoteSettings,
    find_contradiction,
    remote_kind,
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


OLLAMA: Final = remote_kind(
    OllamaSettings, "inferd.worker.remote.ollama", _contradiction
)
