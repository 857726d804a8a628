"""What the admin socket tells of one request's life; nothing of its content."""

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
    """Of the tokens after the first one."""
    audio_ms: float | UnsetType = UNSET
    """Milliseconds of audio that it has."""
    stalls: int | UnsetType = UNSET
    """Times that the client did not read, and its answer waited for that."""
    stalled_ms: float | UnsetType = UNSET
