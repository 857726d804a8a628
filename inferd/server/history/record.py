"""The record of a request: numbers, names and times, nothing of its content."""

from collections.abc import Mapping

import trio
from msgspec import UNSET, Struct, UnsetType

from inferd.backend.caller import Caller
from inferd.backend.interface import CacheReuse
from inferd.limits.server import EXPLAINED_ID_CHARS, HOLDER_BYTES, RECORD_BYTES
from inferd.server.history.rate import tokens_per_second
from inferd.server.history.steps import Steps
from inferd.server.identity.peer import Peer
from inferd.server.queue.notes import QueueNotes
from inferd.server.request_context import RequestContext
from inferd.surfaces import Surface
from inferd.wire.observed import ExplainedRequest, PermitHolder

NO_NOTES = QueueNotes()
"""Of a request that had no place in the queue."""


class Life(Struct, frozen=True, gc=False):
    """What is kept of a request: made in a few microseconds, and put into words when asked.

    Times are seconds on trio's clock.
    """

    number: int
    request_id: str
    peer: Peer
    caller: Caller
    surface: Surface
    model: str | None
    backend: str | None
    arrived_at: float
    arrived_ns: int
    n_bytes: int
    now: float
    """When it ended; of one that has not, when this was made."""
    outcome: str | None
    """``None`` if it has not ended."""
    steps: Steps
    started_at: float | None
    notes: QueueNotes
    n_pauses: int
    paused_s: float
    input_tokens: int
    is_estimate: bool
    n_tokens: int
    n_first_tokens: int
    first_at: float | None
    reuse: CacheReuse
    audio_ms: float | None

    @property
    def n_bytes_kept(self) -> int:
        """An estimate of its memory: its texts and lists, and a number for the rest."""
        n_chars = len(self.request_id) + len(self.model or "")
        n_bytes = RECORD_BYTES + 4 * (n_chars + len(self.caller.principal))
        if holders := self.notes.holders:
            n_bytes += sum(HOLDER_BYTES + 4 * len(name) for _, name in holders)
        return n_bytes


def life_of(context: RequestContext, *, has_ended: bool) -> Life:
    """Take from a request what is told of its life, as of now."""
    output, permit = context.output, context.permit
    return Life(
        context.number,
        cut_id(context.request_id),
        context.peer,
        context.caller,
        context.surface,
        context.model,
        context.backend,
        context.arrived_at,
        context.arrived_ns,
        context.n_bytes,
        trio.current_time(),
        context.outcome if has_ended else None,
        context.steps,
        context.started_at,
        NO_NOTES if permit is None else permit.notes,
        0 if permit is None else permit.n_pauses,
        0.0 if permit is None else permit.paused_s,
        context.input_tokens,
        context.is_estimate,
        output.n_tokens,
        output.n_first_tokens,
        output.first_token_at,
        output.reuse,
        context.stats.get("audio_ms"),
    )


def record_of(life: Life) -> ExplainedRequest:
    """Write a request's life for the protocol."""
    steps, notes, started_at, first_at = (
        *(life.steps, life.notes),
        *(life.started_at, life.first_at),
    )
    has_run = started_at is not None
    left_at = life.now if steps.left_at is None else steps.left_at
    decode_s = 0.0 if first_at is None else left_at - first_at
    return ExplainedRequest(
        number=life.number,
        id=life.request_id,
        uid=life.peer.uid,
        pid=life.peer.pid,
        principal=life.caller.principal or UNSET,
        socket=life.surface.socket,
        model=life.model or UNSET,
        backend=life.backend or UNSET,
        phase="ended" if life.outcome else "running" if has_run else "queued",
        received_ns=life.arrived_ns,
        line_bytes=life.n_bytes,
        outcome=life.outcome or UNSET,
        total_ms=round((life.now - life.arrived_at) * 1000, 3),
        reading_ms=_between(life.arrived_at, steps.queued_at),
        loading_ms=_between(steps.queued_at, steps.loaded_at),
        preparing_ms=_between(steps.loaded_at, steps.prepared_at),
        input_tokens=life.input_tokens or UNSET,
        is_estimate=life.is_estimate or UNSET,
        cached_tokens=life.reuse.cached_tokens if has_run else UNSET,
        cache_miss=life.reuse.miss or UNSET,
        waiting_ms=_between(steps.prepared_at, started_at),
        n_waiting=UNSET if notes.n_waiting is None else notes.n_waiting,
        waited_for=_holders(notes.holders) or UNSET,
        positions=[*notes.positions] or UNSET,
        pauses=life.n_pauses or UNSET,
        paused_ms=round(life.paused_s * 1000, 3) or UNSET,
        run_ms=_between(started_at, left_at),
        prefill_ms=_between(started_at, first_at),
        first_token_ms=_between(life.arrived_at, first_at),
        decode_ms=_between(first_at, left_at),
        output_tokens=life.n_tokens if has_run else UNSET,
        tokens_per_second=tokens_per_second(
            life.n_tokens, life.n_first_tokens, decode_s
        )
        or UNSET,
        audio_ms=life.audio_ms or UNSET,
        stalls=steps.n_stalls or UNSET,
        stalled_ms=round(steps.stalled_s * 1000, 3) if steps.n_stalls else UNSET,
    )


def _holders(holders: Mapping[Caller, int]) -> list[PermitHolder]:
    return [
        PermitHolder(uid=user, principal=principal or UNSET, requests=n_requests)
        for (user, principal), n_requests in holders.items()
    ]


def cut_id(request_id: str) -> str:
    """Cut an id as records have it."""
    n_chars = EXPLAINED_ID_CHARS
    return request_id if len(request_id) <= n_chars else f"{request_id[:n_chars]}…"


def _between(start_s: float | None, end_s: float | None) -> float | UnsetType:
    if start_s is None or end_s is None:
        return UNSET
    return round(max(0.0, end_s - start_s) * 1000, 3)
