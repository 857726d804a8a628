"""A start that failed: the clients at inherited sockets are told why, and not left waiting.

systemd holds the sockets of a service whether its daemon starts or not. Without an answer
their clients would wait until a later start succeeds, or until their own timeouts.
"""

import re
from collections.abc import Sequence
from contextlib import ExitStack, closing
from functools import partial
from typing import Final

import trio

from inferd.errors import NotStartedError
from inferd.limits.server import FAILED_START_S
from inferd.server.event_loop.scheduler import LoopScheduler
from inferd.server.identity.access import Access
from inferd.server.listen.acceptor import (
    Acceptor,
    ListenerSpec,
    refusal_frame,
    refusal_reply,
    refused_listener,
)
from inferd.server.listen.listeners import Listeners
from inferd.server.telemetry.metrics import Metrics
from inferd.surfaces import SURFACES, Surface

_DIRECTORY: Final = re.compile(r"(?<![^\s'\"(=])[^\s'\"(=]*/")
"""All of a word up to its last slash; each word is searched once, however long it is."""


async def refuse_clients(
    listeners: Listeners,
    reason: str,
    metrics: Metrics,
    *,
    access: Access,
    surfaces: Sequence[Surface] = SURFACES,
) -> None:
    """Send each client of the inherited sockets one error with the reason.

    Clients of inference sockets get it without the directories of files.

    It takes ``FAILED_START_S`` seconds; clients that connect later wait for the next
    start. Without inherited sockets it returns at once.

    Args:
        listeners: with the inherited sockets, which are closed.
        reason: why the daemon did not start.
        metrics: counts the refused clients.
        access: other users than these rules allow are not told.
        surfaces: whose sockets may be inherited.
    """
    specs = [
        _refusing(surface, reason)
        for surface in surfaces
        if surface.socket in listeners.inherited
    ]
    if not specs:
        return
    loop = LoopScheduler()
    acceptor = Acceptor(metrics, loop)
    acceptor.access = access
    acceptor.open()
    with closing(acceptor), loop.measuring(), trio.move_on_after(FAILED_START_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(loop.run)
            with ExitStack() as opened:
                for spec in specs:
                    opened.enter_context(listeners.open(nursery, spec, acceptor))
                await trio.sleep_forever()


def without_directories(reason: str) -> str:
    """Leave the names of files in a reason, and not where they are.

    Clients may not know where the operator keeps models; operators read the whole reason
    on the admin socket and in the log.
    """
    return _DIRECTORY.sub("", reason)


def _refusing(surface: Surface, reason: str) -> ListenerSpec:
    told = without_directories(reason) if surface.is_inference else reason
    return refused_listener(
        surface,
        partial(NotStartedError, told),
        refusal_frame if surface.is_inference else refusal_reply,
    )
