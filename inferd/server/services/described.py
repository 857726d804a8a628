"""What a refusal tells of the models that would do."""

from collections.abc import Sequence
from itertools import islice

from msgspec import UNSET

from inferd.backend.interface import Backend
from inferd.limits.protocol import MAX_LISTED_MODELS
from inferd.routing import ModelNames, Requirement
from inferd.wire.offered_facts import OfferedFacts


def described_models(
    backends: Sequence[Backend], requirements: Sequence[Requirement], names: ModelNames
) -> list[OfferedFacts]:
    """Describe the backends that meet all requirements, and the models that may.

    Args:
        backends: that the caller may use.
        requirements: of the request.
        names: by which requests ask for models.

    Bounds: ``MAX_LISTED_MODELS``.
    """
    able = names.able(backends, requirements)
    facts = [_facts(each, names.aliases_of(each.name)) for each in able]
    facts += [
        OfferedFacts(backend=name, aliases=[], state="unloaded", is_unread=True)
        for name in islice(names.unread(backends), MAX_LISTED_MODELS)
    ]
    return facts[:MAX_LISTED_MODELS]


def _facts(backend: Backend, aliases: Sequence[str]) -> OfferedFacts:
    found = backend.capabilities
    return OfferedFacts(
        backend=backend.name,
        aliases=[*aliases],
        state=backend.state,
        generate=found.generate,
        embed=found.embed,
        rerank=found.rerank,
        tools=found.tools,
        thinking=found.thinking,
        vision=found.vision,
        audio=found.audio,
        structure=found.structure,
        n_ctx=found.n_ctx or UNSET,
        n_embd=found.n_embd or UNSET,
        model=found.model or UNSET,
        dialect=found.dialect or UNSET,
    )
