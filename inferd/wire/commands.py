"""Commands and replies of the admin socket."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from inferd.errors import ErrorCode
from inferd.wire.observed import ExplainedRequest, Overview
from inferd.wire.status import BudgetLeft


class Command(Struct, frozen=True, kw_only=True):
    """A command from an admin client."""

    command: str
    """``requests``, ``explain``, ``top``, ``metrics``, ``backends``, ``log``, ``cancel``, ``load``,
    ``unload``, ``drain`` or ``reload``."""
    id: str | None = None
    """With ``cancel``: the id of the request to cancel; with ``explain``: of those that are
    meant."""
    number: int | UnsetType = UNSET
    """With ``explain``: the daemon's own number of the request that is meant."""
    principal: str | UnsetType | None = UNSET
    """With ``cancel``: for whom the request asks; needed where it asks for a principal."""
    backend: str | UnsetType = UNSET
    """With ``load`` and ``unload``: name of the backend whose model is meant."""


class RequestInfo(Struct, frozen=True, kw_only=True):
    """A waiting or running request."""

    id: str
    """The request's id; a long one is cut off and ends with an ellipsis."""
    socket: str
    """File name of the socket that received it."""
    uid: int
    """The caller's user; -1 if the kernel did not report it."""
    pid: int
    principal: str | UnsetType = UNSET
    """For whom a gateway's request asks."""
    phase: Literal["queued", "running"]
    age_ms: float
    """Milliseconds since it arrived."""
    backend: str | UnsetType = UNSET
    position: int | UnsetType = UNSET
    """With ``queued``: 1 for the next to run; unknown while an earlier request of the same
    connection waits."""
    output_tokens: int
    """Tokens generated so far."""


class BackendInfo(Struct, frozen=True, kw_only=True):
    """A configured backend."""

    name: str
    ready: bool
    aliases: list[str] | UnsetType = UNSET
    """Further names for requests."""
    state: str | UnsetType = UNSET
    """``unloaded``, ``loading``, ``ready``, ``unloading`` or ``failed``."""
    unavailable: str | UnsetType = UNSET
    """Reason why it will not be ready soon."""
    budget: BudgetLeft | UnsetType = UNSET
    """What is left of its budget, if it has one."""
    capabilities: Annotated[Raw, Meta(extra_json_schema={"type": "object"})]


class Reply(Struct, frozen=True, kw_only=True):
    """The answer to one command; ``ok`` says whether it was carried out."""

    id: Literal["admin"] = "admin"
    type: Literal["reply"] = "reply"
    command: str
    """The command, as received; empty if the line could not be decoded."""
    ok: bool
    error: str | UnsetType = UNSET
    """With ``ok`` false: the reason."""
    code: ErrorCode | UnsetType = UNSET
    """With ``ok`` false, of ``load`` and ``unload``: the kind of the reason, as the codes of
    error frames have it."""
    requests: list[RequestInfo] | UnsetType = UNSET
    explained: list[ExplainedRequest] | UnsetType = UNSET
    """With ``explain``: those that wait and run, then those that have ended, the newest
    first."""
    since_ns: int | UnsetType = UNSET
    """With ``explain``: when the oldest of the ended ones that are kept was received, in
    nanoseconds since 1970."""
    overview: Overview | UnsetType = UNSET
    """With ``top``: the daemon as a whole."""
    omitted: int | UnsetType = UNSET
    """With ``requests`` and ``explain``: number of requests that did not fit the list."""
    backends: list[BackendInfo] | UnsetType = UNSET
    text: str | UnsetType = UNSET
    """With ``metrics``: the metrics in Prometheus' text format."""
    lines: list[str] | UnsetType = UNSET
    """With ``log``: the newest lines of the log, each an object of JSON, the oldest first."""
    cancelled: int | UnsetType = UNSET
    """With ``cancel``: number of requests that were cancelled."""
    applied: list[str] | UnsetType = UNSET
    """With ``reload``: changed settings that are now in force."""
    needs_restart: list[str] | UnsetType = UNSET
    """With ``reload``: changed settings that need a restart."""
