"""Requests to manage models, and the helper's requests that they become."""

from collections.abc import Callable, Mapping
from functools import partial

from msgspec import Struct

from inferd.bridge.admin.answers import ManagedAnswer
from inferd.bridge.admin.tables import PULL
from inferd.bridge.translation.body import read_body
from inferd.bridge.translation.fields import FieldTable
from inferd.bridge.translation.managed import (
    AskHelper,
    HelperAnswer,
    ManagedQuestion,
    helper_request,
)
from inferd.wire.management import HelperCommand


class PullRequest(Struct, frozen=True, kw_only=True):
    """The honoured fields of a request to pull a model."""

    source: str
    name: str = ""
    sha256: str | None = None
    stream: bool = True


class BackendRequest(Struct, frozen=True, kw_only=True):
    """The honoured fields of a request to load or unload a model."""

    model: str


def asking(command: HelperCommand, answer: Callable[[], HelperAnswer]) -> AskHelper:
    """Return what translates requests without a body.

    Args:
        command: what they ask for.
        answer: makes the form of the answer.
    """

    def ask(body: bytes, named: Mapping[str, str], principal: str) -> ManagedQuestion:  # noqa: ARG001
        request = helper_request(command, principal, model=named.get("model", ""))
        return ManagedQuestion(request, answer())

    return ask


def ask_pull(body: bytes, named: Mapping[str, str], principal: str) -> ManagedQuestion:  # noqa: ARG001
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
    return ManagedQuestion(request, ManagedAnswer(), wanted.stream)


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
) -> ManagedQuestion:
    wanted = read_body(body, table, BackendRequest)
    return ManagedQuestion(
        helper_request(command, principal, model=wanted.model), ManagedAnswer()
    )
