"""What clients are told of models: by a refusal if they ask for it, and by ``models`` frames."""

from typing import Literal

from msgspec import UNSET, Struct, UnsetType


class OfferedFacts(Struct, frozen=True, kw_only=True):
    """A backend, or a model of the store, as the ``capabilities`` frames have it."""

    backend: str
    """Its name."""
    aliases: list[str]
    """Further names for ``model``."""
    state: str
    """``ready``; ``loading``; ``unloaded`` or ``unloading``, where a request loads it; or
    ``failed``."""
    is_unread: Literal[True] | UnsetType = UNSET
    """Present for a model of the store whose header has not been read: what it can do is not
    known before a request names it, and the fields below say nothing of it."""
    generate: bool = False
    embed: bool = False
    rerank: bool = False
    tools: bool = False
    thinking: bool = False
    vision: bool = False
    audio: bool = False
    structure: bool = False
    transcribe: Literal[True] | UnsetType = UNSET
    """Present if it transcribes speech."""
    n_ctx: int | UnsetType = UNSET
    """Tokens one request may take, prompt and answer together; those of a text."""
    n_embd: int | UnsetType = UNSET
    """Length of its vectors."""
    model: str | UnsetType = UNSET
    """The model's own name."""
    dialect: str | UnsetType = UNSET
    """The model family whose prompt and call format it uses."""
