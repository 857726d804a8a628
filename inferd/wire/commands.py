"""What may be asked on the admin socket, and what is answered."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType


class Command(Struct, frozen=True, kw_only=True):
    """A line from a listener."""

    command: str
    """``requests``, ``metrics``, ``backends``, ``cancel``, ``drain`` or ``reload``."""
    id: str | None = None
    """With ``cancel``: of the request to end."""


class RequestInfo(Struct, frozen=True, kw_only=True):
    """A request that waits or runs."""

    id: str
    """A long one is cut off, with an ellipsis at its end."""
    socket: str
    """The leaf of the socket it came in by."""
    uid: int
    """The caller's user; -1 where the kernel did not say."""
    pid: int
    phase: Literal["queued", "running"]
    age_ms: float
    """Since it arrived."""
    backend: str | UnsetType = UNSET
    position: int | UnsetType = UNSET
    """With ``queued``: 1 for the next to run; not known behind another one of its
    connection."""
    output_tokens: int
    """Tokens written so far."""


class BackendInfo(Struct, frozen=True, kw_only=True):
    """A configured backend."""

    name: str
    ready: bool
    unavailable: str | UnsetType = UNSET
    """Why it will not be ready soon."""
    capabilities: Annotated[Raw, Meta(extra_json_schema={"type": "object"})]


class Reply(Struct, frozen=True, kw_only=True):
    """The answer to one command; ``ok`` says whether it was carried out."""

    id: Literal["admin"] = "admin"
    type: Literal["reply"] = "reply"
    command: str
    """As it was asked; empty where the line could not be read."""
    ok: bool
    error: str | UnsetType = UNSET
    """With ``ok`` false: why."""
    requests: list[RequestInfo] | UnsetType = UNSET
    omitted: int | UnsetType = UNSET
    """With ``requests``: how many more there are than fit the list."""
    backends: list[BackendInfo] | UnsetType = UNSET
    text: str | UnsetType = UNSET
    """With ``metrics``: in Prometheus' text format."""
    cancelled: int | UnsetType = UNSET
    """With ``cancel``: how many requests were ended."""
    applied: list[str] | UnsetType = UNSET
    """With ``reload``: the settings that changed and are in force now."""
    needs_restart: list[str] | UnsetType = UNSET
    """With ``reload``: those that changed and are not."""
