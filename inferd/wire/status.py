"""Status frames of the admin socket.

Every frame has ``id`` ``admin`` and ``type`` ``status``. Clients ignore statuses, phases and
keys that they do not know, as ``AnyStatus`` does.
"""

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

Phase = Literal[
    "checking_local", "verify", "mmap", "kv_cache", "backoff", "breaker_open"
]


class LifecycleFrame(Struct, frozen=True, kw_only=True):
    """The lifecycle state of the daemon."""

    id: Literal["admin"] = "admin"
    type: Literal["status"] = "status"
    status: Literal["starting", "loading_model", "restarting", "ready", "draining"]
    phase: Phase | UnsetType = UNSET
    """The step on the way to ``ready``."""
    backend: str | UnsetType = UNSET
    """Configured name of the backend concerned."""
    path: str | UnsetType = UNSET
    """The model file, or a word in brackets if there is no file."""
    n_ctx: int | UnsetType = UNSET
    """With ``kv_cache``: tokens of one request's context."""
    reason: str | UnsetType = UNSET
    """With ``restarting``: why the worker exited."""
    retry_in_s: float | UnsetType = UNSET
    """With ``backoff`` and ``breaker_open``: seconds until the next start."""


class BudgetLeft(Struct, frozen=True, kw_only=True):
    """What is left of a backend's budget."""

    requests_left: int | UnsetType = UNSET
    """Requests that may still begin in this minute, if they are bounded."""
    tokens_left: int | UnsetType = UNSET
    """Tokens that may still be used today, in UTC, if they are bounded."""


class CapabilitiesFrame(Struct, frozen=True, kw_only=True):
    """The capabilities of one backend; sent before ``ready`` and again on connect."""

    id: Literal["admin"] = "admin"
    type: Literal["status"] = "status"
    status: Literal["capabilities"] = "capabilities"
    backend: str
    v2: bool
    vision: bool
    audio: bool
    tools: bool
    thinking: bool
    embed: bool
    generate: bool
    rerank: bool
    accelerator: str
    gpu_layers: int
    device_name: str | UnsetType = UNSET
    """Names of the accelerators."""
    vram_total_bytes: int | UnsetType = UNSET
    """Bytes of memory of the accelerators."""
    vram_free_bytes: int | UnsetType = UNSET
    """Bytes of it that were free when the model had been loaded."""
    cpu_variant: str | UnsetType = UNSET
    """The variant of the library's CPU code in use."""
    wire_version: int
    """Version of the protocol: 1 for this family of NDJSON sockets."""
    n_ctx: int | UnsetType = UNSET
    """Tokens one request may take, prompt and answer together."""
    n_slots: int | UnsetType = UNSET
    """Requests that can run at once."""
    cache_type_k: str | UnsetType = UNSET
    """Data type of the keys in the KV cache."""
    cache_type_v: str | UnsetType = UNSET
    """Data type of the values in the KV cache."""
    model: str | UnsetType = UNSET
    """The model's own name."""
    model_choice: str | UnsetType = UNSET
    """With ``model = "auto"``: which model of the ladder was chosen at the start, and why."""
    remote: Literal[True] | UnsetType = UNSET
    """Present if another engine answers, perhaps on another machine."""
    by_name_only: Literal[True] | UnsetType = UNSET
    """Present if it gets only requests that name it."""
    structure: bool = False
    """Whether it can constrain an answer to a grammar, a schema or a tool call."""
    transcribe: Literal[True] | UnsetType = UNSET
    """Present if it transcribes speech."""
    audio_sample_rate: int | UnsetType = UNSET
    """Samples per second that audio must have."""
    dialect: str | UnsetType = UNSET
    """The model family whose prompt and call format it uses."""
    aliases: list[str] | UnsetType = UNSET
    """Further names of the backend, for the ``model`` of requests."""
    state: str | UnsetType = UNSET
    """``ready``; ``loading``, where requests wait for it; ``unloaded`` or ``unloading``, where
    a request loads it; or ``failed``, where they are refused for a while. On connect it is the
    present state."""
    budget: BudgetLeft | UnsetType = UNSET
    """Present if its requests or tokens are bounded: what is left. On connect it is the present
    state."""
    is_unread: Literal[True] | UnsetType = UNSET
    """Present for a model of the store whose header has not been read: what it can do is not
    known before a request names it, and the fields above say nothing of it."""
    daemon_version: str
    """Version of the daemon."""


StatusFrame = LifecycleFrame | CapabilitiesFrame


class AnyStatus(Struct, frozen=True, kw_only=True):
    """A status frame of any version, as a tolerant client decodes it."""

    status: str
    phase: str | None = None
    backend: str | None = None
    path: str | None = None
    reason: str | None = None
    daemon_version: str | None = None
