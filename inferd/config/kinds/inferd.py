"""The kind ``inferd``: another daemon, asked over its sockets or through its bridge."""

from typing import Annotated, ClassVar, Final, Literal

from msgspec import Meta

from inferd.config.kinds.kind import Contradiction
from inferd.config.kinds.remote import (
    RemoteSettings,
    find_contradiction,
    remote_kind,
)
from inferd.config.kinds.remote_address import SOCKETS_PREFIX

SPEECH_RATE_HZ: Final = 16_000


class InferdSettings(RemoteSettings, frozen=True, tag="inferd", tag_field="kind"):
    """Another daemon: ``sockets:/DIRECTORY`` of its sockets, or the address of its bridge."""

    default_path: ClassVar[str] = ""
    takes_sockets: ClassVar[bool] = True

    generate: bool = True
    """The model there answers conversations."""
    conversation: Literal["local", "remote"] = "local"
    """Who has what was said before: ``local``, each request sends all of it; ``remote``, the
    bridge keeps it in a chat, and is sent the user's new message alone. The key is a token of
    that bridge, to whose name the chats belong."""
    tools: bool = False
    """The model there calls tools."""
    thinking: bool = False
    """The model there has a reasoning trace."""
    structure: bool = False
    """The daemon there holds answers to a structure."""
    token_ids: bool = False
    """The model there takes prompts of token ids, and tells the ids of answers, as those do
    that the daemon there has loaded itself."""
    vision: bool = False
    """The model there takes images."""
    audio: bool = False
    """The model there takes sound in conversations."""
    audio_sample_rate: Annotated[int, Meta(ge=1, le=1_000_000)] = SPEECH_RATE_HZ
    """With ``audio`` or ``transcribe``: samples a second that the model there takes."""
    embed: bool = False
    """The model there makes embeddings."""
    n_embd: Annotated[int, Meta(ge=1, le=65536)] | None = None
    """With ``embed``: numbers of its vectors; others are refused. Default: not compared."""
    rerank: bool = False
    """The model there scores documents."""
    transcribe: bool = False
    """The model there transcribes recordings."""

    @property
    def has_sockets(self) -> bool:
        """Whether the daemon's own sockets are asked, and not its bridge."""
        return self.base_url.startswith(SOCKETS_PREFIX)


def _contradiction(settings: InferdSettings) -> Contradiction | None:
    if settings.n_embd is not None and not settings.embed:
        return Contradiction("n_embd", settings.n_embd, "embed = true")
    uses = (settings.generate, settings.embed, settings.rerank, settings.transcribe)
    if not any(uses):
        return Contradiction("generate", "false", "embed, rerank or transcribe = true")
    return (
        _of_sockets(settings)
        or _of_kept_chats(settings)
        or find_contradiction(settings)
    )


def _of_sockets(settings: InferdSettings) -> Contradiction | None:
    for key in ("api_key_env", "api_key_credential"):
        value = getattr(settings, key)
        if settings.has_sockets and value is not None:
            return Contradiction(key, value, "the base_url of a bridge")
    return None


def _of_kept_chats(settings: InferdSettings) -> Contradiction | None:
    if settings.conversation == "local":
        return None
    if settings.has_sockets:
        return Contradiction("conversation", "remote", "the base_url of a bridge")
    for key in ("tools", "structure", "token_ids", "vision", "audio"):
        if getattr(settings, key):
            return Contradiction(key, "true", 'conversation = "local"')
    return None


INFERD: Final = remote_kind(
    InferdSettings, "inferd.worker.remote.inferd", _contradiction
)
