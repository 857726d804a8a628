"""The kind ``gemini``: a server with Google's Gemini API."""

from typing import Annotated, ClassVar, Final, Literal

from msgspec import Meta

from inferd.config.kinds.kind import Contradiction
from inferd.config.kinds.remote import (
    RemoteSettings,
    find_contradiction,
    remote_kind,
)
from inferd.config.settings import I32_MAX


class GeminiSettings(RemoteSettings, frozen=True, tag="gemini", tag_field="kind"):
    """A server with Google's Gemini API."""

    default_path: ClassVar[str] = "/v1beta"

    generate: bool = True
    """The model there answers; ``false`` for one that only embeds."""
    tools: bool = False
    """The model there calls tools."""
    thinking: bool = False
    """The model there can reason before it answers, and tells its thoughts in summary."""
    thinking_level: Literal["minimal", "low", "medium", "high"] | None = None
    """How much it reasons where reasoning is asked for, for models that have levels. Default:
    the model decides."""
    thinking_budget: Annotated[int, Meta(ge=1, le=I32_MAX)] | None = None
    """Tokens of reasoning, for models that want a number. Default: the model decides."""
    no_thinking: Literal["omit", "budget", "minimal"] = "omit"
    """What is sent where no reasoning is asked for: nothing, so that the model decides and tells
    no thoughts; a ``thinkingBudget`` of 0, which models before Gemini 3 take; or the level
    ``minimal``."""
    skip_signatures: bool = True
    """Send earlier calls with the placeholder for a signature that Google documents, without
    which Gemini 3 refuses them: the signatures of its calls are not kept."""
    structure: bool = False
    """The server holds an answer to a JSON schema in ``responseJsonSchema``."""
    vision: bool = False
    """The model there takes images."""
    count_tokens: bool = False
    """Ask the server for the tokens of prompts that are only to be counted, by
    ``countTokens``. Default: they are estimated."""
    embed: bool = False
    """The model there turns texts into vectors."""
    n_embd: Annotated[int, Meta(ge=1, le=65536)] | None = None
    """With ``embed``: numbers of its vectors; others are refused. Default: not compared."""


def _contradiction(settings: GeminiSettings) -> Contradiction | None:
    level, budget = settings.thinking_level, settings.thinking_budget
    if level is not None and budget is not None:
        return Contradiction("thinking_level", level, "no thinking_budget")
    for key, value in (("thinking_level", level), ("thinking_budget", budget)):
        if value is not None and not settings.thinking:
            return Contradiction(key, value, "thinking = true")
    if settings.n_embd is not None and not settings.embed:
        return Contradiction("n_embd", settings.n_embd, "embed = true")
    if not settings.generate and not settings.embed:
        return Contradiction("generate", "false", "embed = true")
    return find_contradiction(settings)


GEMINI: Final = remote_kind(
    GeminiSettings, "inferd.worker.remote.gemini", _contradiction
)
