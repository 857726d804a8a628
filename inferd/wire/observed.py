"""What the admin socket tells of requests and of the daemon as a whole; no content."""

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from inferd.wire.responses import CacheMiss


class PermitHolder(Struct, frozen=True, kw_only=True, gc=False):
    """A user whose requests ran while another request waited."""

    uid: int
    """The user that limits count; -1 for users whom the kernel did not report."""
    principal: str | UnsetType = UNSET
    """For whom a gateway's requests ask."""
    requests: int
    """Its requests that ran."""


class ExplainedRequest(Struct, frozen=True, kw_only=True, gc=False):
    """The life of a request that waits, runs or has ended.

    What has not happened is missing. Times are of the daemon: they end when an answer is
    handed to the kernel.
    """

    number: int
    """The daemon's own number of the request; counts from 1 at its start."""
    id: str
    """The request's id; a long one is cut off and ends with an ellipsis."""
    uid: int
    """The caller's user; -1 if the kernel did not report it."""
    pid: int
    principal: str | UnsetType = UNSET
    """For whom a gateway's request asks."""
    socket: str
    """File name of the socket that received it."""
    model: str | UnsetType = UNSET
    """The name that the request asked for."""
    backend: str | UnsetType = UNSET
    phase: Literal["queued", "running", "ended"]
    received_ns: int
    """When its line was read, in nanoseconds since 1970."""
    line_bytes: int
    """Length of its line."""
    outcome: str | UnsetType = UNSET
    """With ``ended``: the stop reason, an error code or ``abandoned``."""
    total_ms: float
    """Milliseconds since it was received; of one that has ended, until then."""
    reading_ms: float | UnsetType = UNSET
    """Milliseconds until it had a place in the queue: behind others of its connection, and
    until its line was decoded."""
    loading_ms: float | UnsetType = UNSET
    """Milliseconds for which it waited until its model was loaded."""
    preparing_ms: float | UnsetType = UNSET
    """Milliseconds until its prompt was rendered and counted, with the wait for others'."""
    input_tokens: int | UnsetType = UNSET
    """Tokens of the prompt, or of all texts."""
    is_estimate: bool | UnsetType = UNSET
    """Only as ``true``: these tokens are estimated."""
    cached_tokens: int | UnsetType = UNSET
    """How many of these were in the prompt cache."""
    cache_miss: CacheMiss | UnsetType = UNSET
    """Why none was."""
    waiting_ms: float | UnsetType = UNSET
    """Milliseconds until it ran, from when it was prepared."""
    n_waiting: int | UnsetType = UNSET
    """Requests that waited already, if it could not run at once."""
    waited_for: list[PermitHolder] | UnsetType = UNSET
    """Whose requests ran then, or when it was paused; for operators alone."""
    positions: list[int] | UnsetType = UNSET
    """Its positions in the queue, one after the other; where they were computed."""
    pauses: int | UnsetType = UNSET
    """Times that others had its place."""
    paused_ms: float | UnsetType = UNSET
    run_ms: float | UnsetType = UNSET
    """Milliseconds from when it ran until it gave its place back, with pauses."""
    prefill_ms: float | UnsetType = UNSET
    """Milliseconds from when it ran to its first token."""
    first_token_ms: float | UnsetType = UNSET
    """Milliseconds from when it was received to its first token."""
    decode_ms: float | UnsetType = UNSET
    """Milliseconds from its first token until it gave its place back, with pauses."""
    output_tokens: int | UnsetType = UNSET
    tokens_per_second: float | UnsetType = UNSET
    """Of the tokens after the first one, and those that came at once with it."""
    audio_ms: float | UnsetType = UNSET
    """Milliseconds of audio that it has."""
    stalls: int | UnsetType = UNSET
    """Times that the client did not read, and its answer waited for that."""
    stalled_ms: float | UnsetType = UNSET


class Percentiles(Struct, frozen=True, kw_only=True):
    """Times of requests that ended lately, in milliseconds; each is one that occurred."""

    n: int
    """Requests that have such a time."""
    p50: float
    p95: float
    p99: float


class UserLoad(Struct, frozen=True, kw_only=True):
    """What one user's requests take."""

    uid: int
    """The user that limits count; -1 for users whom the kernel did not report."""
    principal: str | UnsetType = UNSET
    """For whom a gateway's requests ask."""
    running: int
    """Requests that have begun, paused ones among them."""
    waiting: int
    share: float
    """Of the time that all requests have run lately; from 0 to 1."""
    ended: int
    """Requests that ended lately."""
    tokens_per_second: float
    """Tokens of answers lately."""


class ModelLoad(Struct, frozen=True, kw_only=True):
    """What one backend does, and what it takes."""

    name: str
    state: str
    """``unloaded``, ``loading``, ``ready``, ``unloading`` or ``failed``."""
    pid: int | UnsetType = UNSET
    """The process id of its worker, if it has one."""
    resident_bytes: int | UnsetType = UNSET
    """Memory of that process in the machine's memory, with pages of the model's file."""
    cache_bytes: int | UnsetType = UNSET
    """Host memory of saved prompts; unknown until the prompt cache was used."""
    slots: int | UnsetType = UNSET
    """Requests that can run at once."""
    running: int
    waiting: int
    n_ctx: int | UnsetType = UNSET
    """Tokens of one request, or of one text."""
    remote: bool | UnsetType = UNSET
    """Only as ``true``: another engine answers, perhaps on another machine."""
    tokens_per_second: float
    """Tokens of answers lately."""


class Overview(Struct, frozen=True, kw_only=True):
    """The state of the daemon, and what it did lately: in the last ``window_s`` seconds."""

    version: str
    status: str
    """As in status frames: ``ready``, ``restarting``, ``draining`` and so on."""
    at_ns: int
    """Nanoseconds since 1970."""
    uptime_s: float
    pid: int
    resident_bytes: int | UnsetType = UNSET
    """Memory of the daemon's own process."""
    running: int
    """Requests that hold a permit."""
    places: int
    """Permits."""
    waiting: int
    paused: int
    waiting_tokens: int
    """Prompt tokens of those that wait, as far as they are counted."""
    connections: int
    window_s: float
    """At most 60; less if the daemon keeps no older request."""
    ended: int
    failed: int
    """How many of these ended with an error."""
    input_tokens: int
    cached_tokens: int
    """How many of the input tokens were in the prompt cache."""
    tokens_per_second: float
    """Tokens of answers, of requests that run or have ended."""
    first_token_ms: Percentiles | UnsetType = UNSET
    """From when they were received to the first token."""
    waiting_ms: Percentiles | UnsetType = UNSET
    """From when they were received until they ran."""
    total_ms: Percentiles | UnsetType = UNSET
    """From when they were received to the end, for those that did not fail."""
    memory_budget_bytes: int
    memory_needed_bytes: int
    memory_available_bytes: int
    """What the machine and the daemon's control groups still have."""
    users: list[UserLoad]
    """Those with the largest shares first."""
    omitted_users: int | UnsetType = UNSET
    models: list[ModelLoad]
    omitted_models: int | UnsetType = UNSET
