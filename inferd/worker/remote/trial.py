"""Questions to a remote that are no requests: which models it has, and to pull one."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from typing import Final, TypeVar

import trio

from inferd.config.kinds.remote import RemoteSettings
from inferd.config.kinds.remote_address import parse_address
from inferd.config.kinds.remote_limits import MAX_REASON_CHARS, TRIAL_ANSWER_S
from inferd.worker.backend import LoadError
from inferd.worker.remote.api import RemoteApi, RemoteModels, RemotePull
from inferd.worker.remote.failure import NO_KEY, RemoteError, quote
from inferd.worker.remote.http.exchange import RemoteConnections

S = TypeVar("S", bound=RemoteSettings)
Connect = Callable[[], RemoteConnections]
_TOLD: Final = 5
"""Names of models that are told when the right one is missing."""
_NAME_CHARS: Final = 128
"""Characters of each of them."""


def ask(
    connect: Connect,
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
    names = list_models(connect, api, key)
    if settings.model not in names:
        listed = ", ".join(quote(each)[:_NAME_CHARS] for each in names[:_TOLD])
        has = f"the first of its {len(names)}: {listed}" if names else "it has none"
        reason = f"the remote has no model {settings.model}; {has}"
        raise LoadError(reason, reason)
    return f"{where} answers, and has the model {settings.model}"


def list_models(connect: Connect, api: RemoteApi[S], key: str) -> Sequence[str]:
    """Ask a remote for the names of its models.

    Raises:
        LoadError: it does not answer, or tells none.
    """
    if api.models is None:
        raise LoadError(f"{api.name} tells no models", "")
    with _failures_of(key, f"told no models within {TRIAL_ANSWER_S:g} s"):
        return trio.run(_list, connect, api.models)


def pull_model(
    connect: Connect,
    api: RemoteApi[S],
    key: str,
    name: str,
    on_told: Callable[[str], object],
) -> None:
    """Have a remote bring a model to where it is.

    Args:
        connect: makes what asks it.
        api: of the remote.
        key: left out of what is told.
        name: of the model, as the remote knows it.
        on_told: is called with what it says, once for each different text.

    Raises:
        LoadError: it cannot be told to, or it failed.
    """
    if api.pull is None:
        raise LoadError(f"{api.name} cannot be told to pull models", "")
    with _failures_of(key, "says nothing"):
        trio.run(_pull, connect, api.pull, name, on_told)


@contextmanager
def _failures_of(key: str, silence: str) -> Iterator[None]:
    """Turn failures of a remote into those of a load, without the key."""
    try:
        yield
    except trio.TooSlowError as error:
        reason = f"the remote {silence}"
        raise LoadError(reason, reason) from error
    except RemoteError as error:
        reason = str(error).replace(key, NO_KEY) if key else str(error)
        raise LoadError(reason, reason) from error


async def _pull(
    connect: Connect,
    pull: RemotePull,
    name: str,
    on_told: Callable[[str], object],
) -> None:
    before = ""
    async with (
        aclosing(connect()) as connections,
        connections.ask(pull.write(name)) as (parts, deadline),
        aclosing(parts),
    ):
        async for part in parts:
            deadline.token_received()
            status = pull.read(part)
            if status.text != before:
                before = status.text
                on_told(before[:MAX_REASON_CHARS])
            if status.is_done:
                return
    raise RemoteError("the remote's answer ended in its middle")


async def _list(connect: Connect, models: RemoteModels) -> Sequence[str]:
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
