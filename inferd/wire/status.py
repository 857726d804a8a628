"""What the admin socket tells its listeners.

Every frame has ``id`` ``admin`` and ``type`` ``status``. Listeners ignore statuses,
phases and keys that they do not know, as ``AnyStatus`` does.
"""

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

Phase = Literal[
    "checking_local", "verify", "mmap", "kv_cache", "backoff", "breaker_open"
]


class LifecycleFrame(Struct, frozen=True, kw_only=True):
    """Where the daemon stands in its life, and why."""

    id: Literal["admin"] = "admin"
    type: Literal["status"] = "status"
    status: Literal["starting", "loading_model", "restarting", "ready", "draining"]
    phase: Phase | UnsetType = UNSET
    """What is being done to get ready."""
    backend: str | UnsetType = UNSET
    """The backend that this is about, by its configured name."""
    path: str | UnsetType = UNSET
    """The model file, or a word in brackets for what is no file."""
    n_ctx: int | UnsetType = UNSET
    """With ``kv_cache``: tokens of one request's context."""
    reason: str | UnsetType = UNSET
    """With ``restarting``: why the worker is gone."""
    retry_in_s: float | UnsetType = UNSET
    """With ``backoff`` and ``breaker_open``: seconds until the next start."""


class CapabilitiesFrame(Struct, frozen=True, kw_only=True):
    """What one backend can do; published before ``ready`` and replayed on connect."""

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
    cpu_variant: str | UnsetType = UNSET
    """Which of the library's variants for processors it runs."""
    wire_version: int
    """The protocol's generation: 1 for this family of NDJSON sockets."""
    n_ctx: int | UnsetType = UNSET
    """Tokens one request may take, prompt and answer together."""
    n_slots: int | UnsetType = UNSET
    """Requests that can run at once."""
    cache_type_k: str | UnsetType = UNSET
    """How the keys of its KV cache are kept."""
    cache_type_v: str | UnsetType = UNSET
    """How the values are."""
    model: str | UnsetType = UNSET
    """The model's own name."""
    structure: bool = False
    """Whether it can hold an answer to a grammar, a schema or a call."""
    transcribe: Literal[True] | UnsetType = UNSET
    """It writes speech down."""
    audio_sample_rate: int | UnsetType = UNSET
    """Samples a second that sound must have."""
    dialect: str | UnsetType = UNSET
    """The family whose way of writing prompts and calls it follows."""
    daemon_version: str
    """The version of the daemon that speaks."""


StatusFrame = LifecycleFrame | CapabilitiesFrame


class AnyStatus(Struct, frozen=True, kw_only=True):
    """A status frame as a tolerant listener reads it: from any version."""

    status: str
    phase: str | None = None
    backend: str | None = None
    path: str | None = None
    reason: str | None = None
    daemon_version: str | None = None
