"""What the bridge asks of its helper, and the frames of the answers.

A connection has one request, a line of JSON, and then the lines of its answer, the last of
which is ``done`` or ``error``. A connection that is closed before that ends its request.
"""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from inferd.limits.models import MODEL_NAME_MAX_CHARS, SOURCE_MAX_CHARS
from inferd.wire.observed import Overview

HELPER_SOCKET: Final = "bridge_helper.sock"
"""File name of the socket, beside those of the daemon."""

HelperCommand = Literal[
    "list",
    "show",
    "pull",
    "remove",
    "status",
    "machine",
    "log",
    "load",
    "unload",
    "reload",
]
"""What the helper does for the bridge."""

Shown = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f-\x9f]*\Z")]
"""A text without characters that steer a terminal."""


class HelperRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request of the bridge."""

    command: HelperCommand
    principal: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}\Z")]
    """Who asks it of the bridge: the name of a token."""
    model: Annotated[Shown, Meta(max_length=MODEL_NAME_MAX_CHARS)] = ""
    """With ``show`` and ``remove`` a name of the store, with ``load`` and ``unload`` one that
    requests may use, with ``pull`` the name that the model gets; empty for one that follows
    from the source."""
    source: Annotated[str, Meta(max_length=SOURCE_MAX_CHARS)] = ""
    """With ``pull``: as ``inferd model pull`` takes it."""
    sha256: Annotated[str, Meta(pattern=r"^[0-9A-Fa-f]{64}\Z")] | None = None
    """With ``pull``: of the file at an address."""


class PullProgress(Struct, frozen=True, kw_only=True, tag_field="type", tag="progress"):
    """How far a pull is."""

    phase: Literal["plan", "download"]
    file: str = ""
    sha256: str = ""
    done: int = 0
    """Bytes of the file that are there."""
    total: int | None = None
    """Bytes of the file, if they are known."""


class ManagedFile(Struct, frozen=True, kw_only=True):
    """A file of a model."""

    name: str
    sha256: str
    n_bytes: int
    role: str


class ManagedModel(Struct, frozen=True, kw_only=True, tag_field="type", tag="model"):
    """A model of the store."""

    name: str
    kind: str
    source: str
    revision: str
    license: str
    created: str
    """UTC, RFC 3339."""
    files: tuple[ManagedFile, ...]
    is_complete: bool
    """Whether the store has all its files."""


class ManagedBackend(
    Struct, frozen=True, kw_only=True, tag_field="type", tag="backend"
):
    """A backend of the daemon."""

    name: str
    ready: bool
    aliases: tuple[str, ...] = ()
    state: str | None = None
    """Of a backend whose model is loaded on demand."""
    unavailable: str | None = None
    n_slots: int | None = None
    """Requests that it runs at once, if it is known."""
    n_ctx: int | None = None
    """Tokens that a request may take, prompt and answer together, if it is known."""


class ManagedRequest(Struct, frozen=True, kw_only=True):
    """A request that waits or runs, without its id."""

    uid: int
    """The caller's user; -1 if the kernel did not report it."""
    principal: str | None = None
    """For whom a gateway's request asks."""
    socket: str
    phase: Literal["queued", "running"]
    age_ms: float
    backend: str | None = None
    position: int | None = None
    """In the queue, 1 for the next to run; unknown where an earlier one of its connection
    waits."""
    output_tokens: int


class ManagedMachine(
    Struct, frozen=True, kw_only=True, tag_field="type", tag="machine"
):
    """The daemon's requests, the numbers of ``top``, and metrics."""

    requests: tuple[ManagedRequest, ...]
    """Those that run first, then the queue in its order."""
    n_omitted: int = 0
    """Further requests."""
    overview: Overview
    """As the daemon tells it to ``inferd top``."""
    metrics: str
    """In Prometheus' text format."""


class ManagedLog(Struct, frozen=True, kw_only=True, tag_field="type", tag="log"):
    """The newest lines of the daemon's log."""

    lines: tuple[str, ...]
    """Each an object of JSON, the oldest first."""


class HelperDone(Struct, frozen=True, kw_only=True, tag_field="type", tag="done"):
    """The end of a request that was carried out."""

    model: str | UnsetType = UNSET
    """With ``pull``: the name that the model has."""
    freed_bytes: int | UnsetType = UNSET
    """With ``remove``."""
    applied: tuple[str, ...] | UnsetType = UNSET
    """With ``reload``: changed settings that are in force."""
    needs_restart: tuple[str, ...] | UnsetType = UNSET
    """With ``reload``: changed settings that need a restart."""


FailureKind = Literal[
    "invalid_request",
    "permission_denied",
    "not_allowed",
    "busy",
    "too_large",
    "no_space",
    "model_not_found",
    "unavailable",
    "failed",
    "internal",
]
"""Why a request was not carried out."""


class HelperFailure(Struct, frozen=True, kw_only=True, tag_field="type", tag="error"):
    """The end of a request that was not carried out."""

    code: FailureKind
    message: str
    """A sentence for people, without paths of the machine."""
    retry_after_s: float | None = None


HelperFrame = (
    PullProgress
    | ManagedModel
    | ManagedBackend
    | ManagedMachine
    | ManagedLog
    | HelperDone
    | HelperFailure
)
HELPER_REQUESTS: Final = msgspec.json.Decoder(HelperRequest)
HELPER_FRAMES: Final = msgspec.json.Decoder(HelperFrame)


def helper_line(message: HelperRequest | HelperFrame) -> bytes:
    """Return the line of a message."""
    return msgspec.json.encode(message) + b"\n"
