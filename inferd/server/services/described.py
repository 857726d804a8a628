"""What clients are told of models: by a refusal if they ask for it, and by ``describe``."""

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
    found, _ = listed_models(backends, requirements, names, most=MAX_LISTED_MODELS)
    return found


def listed_models(
    backends: Sequence[Backend],
    requirements: Sequence[Requirement],
    names: ModelNames,
    *,
    most: int,
) -> tuple[list[OfferedFacts], int]:
    """Describe these models, so many at most; also return how many there are.

    Args:
        backends: as for ``described_models``, like the next two.
        requirements: that a backend has to meet.
        names: by which requests ask for models.
        most: that are described.
    """
    able = names.able(backends, requirements)
    unread = names.unread(backends)
    facts = [facts_of(each, names.aliases_of(each.name)) for each in islice(able, most)]
    facts += [
        OfferedFacts(backend=name, aliases=[], state="unloaded", is_unread=True)
        for name in islice(unread, most - len(facts))
    ]
    return facts, len(able) + len(unread)


def facts_of(backend: Backend, aliases: Sequence[str]) -> OfferedFacts:
    """Describe a backend."""
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
        transcribe=found.transcribe or UNSET,
        n_ctx=found.n_ctx or UNSET,
        n_embd=found.n_embd or UNSET,
        model=found.model or UNSET,
        dialect=found.dialect or UNSET,
    )
