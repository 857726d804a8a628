"""A request's life in words: pure, of a record of the daemon's."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from msgspec import UNSET, UnsetType

from inferd.wire.observed import ExplainedRequest, PermitHolder

HEAD: Final = "  number  received     uid      took  ended with           id"
"""The head of a list of requests."""
_MS_UP_TO: Final = 999.5
_S_UP_TO: Final = 60_000
"""Milliseconds from which on a time is written in seconds, and in minutes."""


def story(record: ExplainedRequest) -> Iterator[str]:
    """Tell what became of a request, a line for each step that took time."""
    yield _headline(record)
    yield f"  {_received(record)}"
    for step in (
        _reading(record),
        _loading(record),
        _preparing(record),
        _waiting(record),
        _prefill(record),
        _decode(record),
        _run(record),
        _paused(record),
        _stalled(record),
    ):
        if step:
            yield f"  {step}"
    yield f"  {_end(record)}"


def row(record: ExplainedRequest, width: int) -> str:
    """Tell a request in one line, of at most ``width`` characters."""
    ended = record.outcome if record.outcome is not UNSET else f"({record.phase})"
    line = (
        f"{record.number:>8}  {_clock(record.received_ns)[:8]}  {record.uid:>6}"
        f"  {duration(record.total_ms):>8}  {ended:<20} {record.id}"
    )
    return line if len(line) <= width else f"{line[: max(0, width - 1)]}…"


def duration(ms: float) -> str:
    """Write a time in the unit that it is read in."""
    if ms < _MS_UP_TO:
        return f"{ms:.3g} ms"
    if ms < _S_UP_TO:
        return f"{ms / 1000:.2f} s"
    minutes, seconds = divmod(int(ms // 1000), 60)
    return f"{minutes} min {seconds} s"


def _headline(record: ExplainedRequest) -> str:
    if record.phase == "ended":
        state = f"{record.outcome} after {duration(record.total_ms)}"
    else:
        state = f"{record.phase} for {duration(record.total_ms)} so far"
    return f"request {record.id} (number {record.number}): {state}"


def _received(record: ExplainedRequest) -> str:
    whom = _named(record.uid, record.principal)
    backend = f", backend {record.backend}" if record.backend else ""
    asked = f", asked for {record.model}" if record.model else ""
    return (
        f"received {_clock(record.received_ns)} UTC on {record.socket} from {whom}, "
        f"pid {record.pid}: {record.line_bytes} bytes{asked}{backend}"
    )


def _reading(record: ExplainedRequest) -> str:
    if not (ms := _known(record.reading_ms)) or ms < 1:
        return ""
    return f"read in {duration(ms)}, with those before it on its connection"


def _loading(record: ExplainedRequest) -> str:
    if not (ms := _known(record.loading_ms)) or ms < 1:
        return ""
    return f"waited {duration(ms)} for its model to be loaded"


def _preparing(record: ExplainedRequest) -> str:
    if record.preparing_ms is UNSET:
        return ""
    about = "some " if record.is_estimate else ""
    tokens = f": {about}{record.input_tokens} tokens" if record.input_tokens else ""
    return f"prepared in {duration(record.preparing_ms)}{tokens}"


def _waiting(record: ExplainedRequest) -> str:
    waited = f"waited {duration(record.waiting_ms)} to run" if record.waiting_ms else ""
    if record.n_waiting is UNSET:
        return f"{waited}, was granted at once" if waited else ""
    parts = [
        waited or "waits to run" if record.phase == "queued" else waited or "waited"
    ]
    parts.append(f"{record.n_waiting} waited before it")
    if record.waited_for:
        holders = ", ".join(map(_holder, record.waited_for))
        parts.append(f"the permits had {holders}")
    if record.positions:
        places = ", ".join(map(str, record.positions))
        parts.append(f"position {places}")
    return "; ".join(parts)


def _prefill(record: ExplainedRequest) -> str:
    if record.prefill_ms is UNSET:
        return ""
    n_cached = _known(record.cached_tokens)
    n_read = max(0, int(_known(record.input_tokens)) - int(n_cached))
    rate = 1000 * n_read / record.prefill_ms if record.prefill_ms else 0
    cached = f"{n_cached:g} cached, {n_read} read"
    if record.cache_miss:
        cached = f"none cached ({record.cache_miss}), {n_read} read"
    return f"prefill {duration(record.prefill_ms)}: {cached}, {rate:.4g} tokens/s"


def _decode(record: ExplainedRequest) -> str:
    if record.decode_ms is UNSET:
        return ""
    rate = _known(record.tokens_per_second)
    speed = f", {rate:.4g} tokens/s" if rate else ""
    return f"decode {duration(record.decode_ms)}: {record.output_tokens} tokens{speed}"


def _run(record: ExplainedRequest) -> str:
    """Tell how long it ran, where no token says it."""
    if record.run_ms is UNSET or record.prefill_ms is not UNSET:
        return ""
    return f"ran for {duration(record.run_ms)}, without a token"


def _paused(record: ExplainedRequest) -> str:
    if record.pauses is UNSET and record.paused_ms is UNSET:
        return ""
    paused = duration(_known(record.paused_ms))
    return f"paused {_known(record.pauses):g} times for others, {paused} in all"


def _stalled(record: ExplainedRequest) -> str:
    if record.stalls is UNSET:
        return ""
    stalled = duration(_known(record.stalled_ms))
    return f"its client read slowly: {record.stalls} waits, {stalled} in all"


def _end(record: ExplainedRequest) -> str:
    if record.phase != "ended":
        return f"is {record.phase}"
    return f"ended with {record.outcome}"


def _holder(holder: PermitHolder) -> str:
    whom = _named(holder.uid, holder.principal)
    return whom if holder.requests == 1 else f"{whom} ({holder.requests} requests)"


def _named(uid: int, principal: str | UnsetType) -> str:
    return f"uid {uid} for {principal}" if principal else f"uid {uid}"


def _known(number: float | UnsetType) -> float:
    return 0 if number is UNSET else number


def _clock(ns: int) -> str:
    return f"{datetime.fromtimestamp(ns / 1e9, UTC):%H:%M:%S.%f}"[:12]
