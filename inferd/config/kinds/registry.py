"""The registry of the kinds of backends: adding a kind is a line here."""

from collections.abc import Iterable
from typing import Final, TypeVar, cast

from inferd.config.kinds.anthropic import ANTHROPIC
from inferd.config.kinds.gemini import GEMINI
from inferd.config.kinds.inferd import INFERD
from inferd.config.kinds.kind import BackendKind, MemoryPolicy
from inferd.config.kinds.llamacpp import LLAMACPP
from inferd.config.kinds.mock import MOCK
from inferd.config.kinds.ollama import OLLAMA
from inferd.config.kinds.openai import OPENAI
from inferd.config.kinds.whisper_server import WHISPER_SERVER
from inferd.config.kinds.whispercpp import WHISPERCPP
from inferd.config.settings import BackendSettings

S = TypeVar("S", bound=BackendSettings)


class KindRegistry:
    """Kinds of backends, looked up by the type of their settings.

    Args:
        kinds: the records, in the order of the documentation.
        default: the backend that is served without a ``[[backend]]``.
    """

    def __init__(
        self, kinds: Iterable[BackendKind[BackendSettings]], default: BackendSettings
    ) -> None:
        self.kinds = tuple(kinds)
        self.default = default
        self._by_type = {kind.settings: kind for kind in self.kinds}

    def of(self, settings: S) -> BackendKind[S]:
        """Look up the kind of a backend.

        Raises:
            KeyError: it is not registered.
        """
        return cast("BackendKind[S]", self._by_type[type(settings)])

    def named(self, name: str) -> BackendKind[BackendSettings] | None:
        """Look up a kind by its name; ``None`` if there is none."""
        return next((kind for kind in self.kinds if kind.name == name), None)

    def with_kinds(self, *kinds: BackendKind[BackendSettings]) -> "KindRegistry":
        """Make a registry that has other kinds besides."""
        return KindRegistry((*self.kinds, *kinds), self.default)

    def demanding_memory(self, backends: Iterable[BackendSettings]) -> list[str]:
        """List the names of those backends that the memory plan waits for."""
        return [
            settings.name
            for settings in backends
            if self.of(settings).memory(settings) is MemoryPolicy.DEMANDED
        ]


DEFAULT: Final = LLAMACPP
"""The kind of ``inferd serve --model FILE`` and of a daemon without a configuration."""

MODELLESS: Final = MOCK
"""A kind whose worker needs no model, to try the sandbox with."""

KINDS: Final = KindRegistry(
    [
        LLAMACPP,
        WHISPERCPP,
        OPENAI,
        OLLAMA,
        ANTHROPIC,
        GEMINI,
        WHISPER_SERVER,
        INFERD,
        MOCK,
    ],
    default=DEFAULT.settings(name="chat"),
)
