"""One question to a remote, for the doctor: does it have the configured model?"""

from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Final, TypeVar

import trio

from inferd.config.kinds.remote import RemoteSettings
from inferd.config.kinds.remote_address import parse_address
from inferd.config.kinds.remote_limits import TRIAL_ANSWER_S
from inferd.worker.backend import LoadError
from inferd.worker.remote.api import RemoteApi, RemoteModels
from inferd.worker.remote.failure import NO_KEY, RemoteError, quote
from inferd.worker.remote.http.exchange import RemoteConnections

S = TypeVar("S", bound=RemoteSettings)
_TOLD: Final = 5
"""Names of models that are told when the right one is missing."""
_NAME_CHARS: Final = 128
"""Characters of each of them."""


def ask(
    connect: Callable[[], RemoteConnections],
    api: RemoteApi[S],
    settings: S,
    key: str,
) -> str:
    """Ask a remote for its models; the request has the key, and nothing else of ours.

    Returns:
        What was found, for the doctor.

    Raises:
        LoadError: it does not answer, or does not have the model.
    """
    where = f"{api.name} at {parse_address(settings.base_url, settings.default_path)}"
    if api.models is None:
        return f"{where} tells no models, and was not asked"
    try:
        names = trio.run(_list, connect, api.models)
    except trio.TooSlowError as error:
        reason = f"the remote told no models within {TRIAL_ANSWER_S:g} s"
        raise LoadError(reason, reason) from error
    except RemoteError as error:
        reason = str(error).replace(key, NO_KEY) if key else str(error)
        raise LoadError(reason, reason) from error
    if settings.model not in names:
        listed = ", ".join(quote(each)[:_NAME_CHARS] for each in names[:_TOLD])
        has = f"the first of its {len(names)}: {listed}" if names else "it has none"
        reason = f"the remote has no model {settings.model}; {has}"
        raise LoadError(reason, reason)
    return f"{where} answers, and has the model {settings.model}"


async def _list(
    connect: Callable[[], RemoteConnections], models: RemoteModels
) -> Sequence[str]:
    document = b""
    with trio.fail_after(TRIAL_ANSWER_S):
        async with (
            aclosing(connect()) as connections,
            connections.ask(models.request) as (parts, _),
            aclosing(parts),
        ):
            async for part in parts:
                document += part
    return models.read(document)
