"""Which models the daemon serves: one question a socket."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Final, cast

import trio

from inferd.bridge.translation.api import OfferedModel
from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.bridge.upstream.failures import RETRY_UNAVAILABLE_S
from inferd.client.connection.asynchronous import AsyncConnection
from inferd.client.discovery import NoDaemonError
from inferd.client.exchange import ClientError
from inferd.client.surfaces import describing
from inferd.limits.bridge import DESCRIBE_S
from inferd.surfaces import EMBED, RERANK, V2, Surface
from inferd.wire.offered_facts import OfferedFacts
from inferd.wire.requests import DescribeRequest
from inferd.wire.responses import ModelsFrame

_USES: Final[Mapping[Surface, tuple[str, ...]]] = {
    V2: ("generate", "transcribe"),
    EMBED: ("embed",),
    RERANK: ("rerank",),
}
"""The sockets that are asked, and what their requests use models for."""


async def list_models(
    directory: Path | None, principal: str | None
) -> list[OfferedModel]:
    """Ask the daemon which names requests may use, those of the store last.

    Args:
        directory: of the sockets; ``None`` for the default ones.
        principal: who asks, where the bridge is a gateway.

    Raises:
        BridgeError: no socket answers, or one not in time.
    """
    answers: dict[Surface, Sequence[OfferedFacts]] = {}

    async def ask(surface: Surface) -> None:
        try:
            answers[surface] = await describe(directory, surface, principal)
        except (NoDaemonError, ClientError, OSError):
            return

    with trio.move_on_after(DESCRIBE_S) as scope:
        async with trio.open_nursery() as nursery:
            for surface in _USES:
                nursery.start_soon(ask, surface)
    if scope.cancelled_caught or not answers:
        raise BridgeError(
            Reason.UNAVAILABLE,
            "the daemon is not running",
            retry_after_s=RETRY_UNAVAILABLE_S,
        )
    return offered_models(answers)


async def describe(
    directory: Path | None,
    surface: Surface,
    principal: str | None,
    model: str | None = None,
) -> Sequence[OfferedFacts]:
    """Ask the daemon for the models of a socket.

    Args:
        directory: as for ``list_models``.
        surface: the socket's.
        principal: as for ``list_models``.
        model: the only one that is asked for, by its name or an alias.

    Raises:
        ClientError: the daemon refuses, or does not answer to the end.
        NoDaemonError: nothing accepts connections there.
        UntrustedServerError: the server's uid is not trusted.
    """
    connection = AsyncConnection(describing(surface), directory, ())
    request = DescribeRequest(id="models", model=model, principal=principal)
    try:
        asked = cast("AsyncGenerator[ModelsFrame, None]", connection.ask(request))
        async with aclosing(asked) as frames:
            return [facts async for frame in frames for facts in frame.models]
    finally:
        connection.close()


def offered_models(
    answers: Mapping[Surface, Sequence[OfferedFacts]],
) -> list[OfferedModel]:
    """Put together what each socket tells; names that several tell of are one model."""
    uses: dict[str, list[str]] = {}
    facts: dict[str, OfferedFacts] = {}
    for is_unread in (False, True):
        for surface, possible in _USES.items():
            for each in answers.get(surface, ()):
                if (each.is_unread is True) == is_unread:
                    for name in (each.backend, *each.aliases):
                        uses.setdefault(name, []).extend(_uses(each, possible))
                        facts.setdefault(name, each)
    return [OfferedModel(name, tuple(uses[name]), facts[name]) for name in uses]


def _uses(facts: OfferedFacts, possible: Sequence[str]) -> Sequence[str]:
    if facts.is_unread is True:
        return possible
    does = {
        "generate": facts.generate,
        "transcribe": facts.transcribe is True,
        "embed": facts.embed,
        "rerank": facts.rerank,
    }
    return [use for use in possible if does[use]]
