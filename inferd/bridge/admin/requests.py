"""Requests to manage models, and the helper's requests that they become."""

from collections.abc import Callable, Mapping
from functools import partial

import msgspec
from msgspec import Struct

from inferd.bridge.admin.answers import ManagedAnswer
from inferd.bridge.admin.tables import PULL
from inferd.bridge.translation.body import read_body
from inferd.bridge.translation.errand import AskHelper, Errand, HelperAnswer
from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.bridge.translation.fields import FieldTable
from inferd.limits.bridge import MAX_STATED_CHARS
from inferd.wire.management import HelperCommand, HelperRequest


class PullRequest(Struct, frozen=True, kw_only=True):
    """The honoured fields of a request to pull a model."""

    source: str
    name: str = ""
    sha256: str | None = None
    stream: bool = True


class BackendRequest(Struct, frozen=True, kw_only=True):
    """The honoured fields of a request to load or unload a model."""

    model: str


def helper_request(  # noqa: PLR0913  # the fields of a request
    command: HelperCommand,
    principal: str,
    *,
    model: str = "",
    source: str = "",
    sha256: str | None = None,
    names: Mapping[str, str] | None = None,
) -> HelperRequest:
    """Return a request of the helper, whose rules for texts it keeps.

    Args:
        command: what is to be done.
        principal: who asks.
        model: its name.
        source: of a pull.
        sha256: of a pull.
        names: the API's names of these fields, where they differ.

    Raises:
        BridgeError: a text is too long, or has what it must not have.
    """
    fields = {
        "command": command,
        "principal": principal,
        "model": model,
        "source": source,
        "sha256": sha256,
    }
    try:
        return msgspec.convert(fields, HelperRequest)
    except msgspec.ValidationError as error:
        text, _, place = str(error).partition(" - at `$.")
        own = place.removesuffix("`")
        param = (names or {}).get(own, own)
        raise BridgeError(
            Reason.INVALID_REQUEST,
            f"{param}: {text}"[:MAX_STATED_CHARS],
            param=param,
        ) from error


def asking(command: HelperCommand, answer: Callable[[], HelperAnswer]) -> AskHelper:
    """Return what translates requests without a body.

    Args:
        command: what they ask for.
        answer: makes the form of the answer.
    """

    def ask(body: bytes, named: Mapping[str, str], principal: str) -> Errand:  # noqa: ARG001
        request = helper_request(command, principal, model=named.get("model", ""))
        return Errand(request, answer())

    return ask


def ask_pull(body: bytes, named: Mapping[str, str], principal: str) -> Errand:  # noqa: ARG001
    """Translate a request to pull a model.

    Raises:
        BridgeError: it has something that is not allowed.
    """
    wanted = read_body(body, PULL, PullRequest)
    request = helper_request(
        "pull",
        principal,
        model=wanted.name,
        source=wanted.source,
        sha256=wanted.sha256,
        names={"model": "name"},
    )
    return Errand(request, ManagedAnswer(), wanted.stream)


def ask_order(command: HelperCommand, table: FieldTable) -> AskHelper:
    """Return what translates requests to load or unload a model.

    Args:
        command: which of them.
        table: of the fields.
    """
    return partial(_ask_order, command, table)


def _ask_order(
    command: HelperCommand,
    table: FieldTable,
    body: bytes,
    named: Mapping[str, str],  # noqa: ARG001
    principal: str,
) -> Errand:
    wanted = read_body(body, table, BackendRequest)
    return Errand(
        helper_request(command, principal, model=wanted.model), ManagedAnswer()
    )
