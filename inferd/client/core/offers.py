"""What a daemon serves, and how it is, as the client library tells it."""

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from inferd.client.core.answer import given
from inferd.wire.offered_facts import OfferedFacts
from inferd.wire.status import AnyStatus

READY: Final = "ready"
_SERVED: Final = frozenset([READY, "unloaded"])
"""States of a model whose requests are answered."""


class ServedFacts(Struct, frozen=True, kw_only=True):
    """A model that requests may name."""

    name: str
    """For the option ``model``."""
    aliases: Sequence[str]
    """Further names."""
    state: str
    """``ready``, ``loading``, ``unloaded``, ``unloading`` or ``failed``."""
    can: frozenset[str]
    """What it does: ``generate``, ``embed``, ``rerank``, ``transcribe``, ``tools``,
    ``thinking``, ``vision``, ``audio``, ``structure``."""
    n_ctx: int | None = None
    """Tokens of one request, prompt and answer together."""
    dimensions: int | None = None
    """Numbers of one vector."""
    title: str | None = None
    """The model's own name."""


_ABILITIES: Final = (
    *("generate", "embed", "rerank", "transcribe"),
    *("tools", "thinking", "vision", "audio", "structure"),
)


def offered(answers: Iterable[Sequence[OfferedFacts]]) -> list[ServedFacts]:
    """Put together what the sockets tell: each model once, in the order of the first."""
    facts = {each.backend: each for answer in answers for each in answer}
    return [_model(each) for each in facts.values()]


def _model(facts: OfferedFacts) -> ServedFacts:
    return ServedFacts(
        name=facts.backend,
        aliases=facts.aliases,
        state=facts.state,
        can=frozenset(name for name in _ABILITIES if getattr(facts, name) is True),
        n_ctx=given(facts.n_ctx),
        dimensions=given(facts.n_embd),
        title=given(facts.model),
    )


def is_served(models: Sequence[ServedFacts]) -> bool:
    """Tell whether a request would be answered, by the states of the models."""
    return any(each.state in _SERVED for each in models)


class DaemonStatus(Struct, frozen=True, kw_only=True):
    """How a daemon is."""

    state: str
    """``starting``, ``loading_model``, ``restarting``, ``ready`` or ``draining``."""
    phase: str | None = None
    """The step on the way to ``ready``."""
    backend: str | None = None
    """Whose step it is."""
    reason: str | None = None
    """With ``restarting``: why the worker ended."""

    @property
    def is_ready(self) -> bool:
        """Whether it answers requests."""
        return self.state == READY


def daemon_status(frame: AnyStatus) -> DaemonStatus | None:
    """Read a status frame; ``None`` for one that tells of a backend, not of the daemon."""
    if frame.status == "capabilities":
        return None
    return DaemonStatus(
        state=frame.status,
        phase=frame.phase,
        backend=frame.backend,
        reason=frame.reason,
    )


def bridge_status(models: Sequence[ServedFacts]) -> DaemonStatus:
    """Return how a daemon behind a bridge is, as far as its models tell."""
    return DaemonStatus(state=READY if is_served(models) else "loading_model")
