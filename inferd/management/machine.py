"""What the daemon tells of itself, as frames of the helper; pure."""

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, Struct

from inferd.limits.bridge import MAX_TOLD_REQUESTS
from inferd.wire.commands import BackendInfo, Reply, RequestInfo
from inferd.wire.management import (
    ManagedBackend,
    ManagedLog,
    ManagedMachine,
    ManagedRequest,
)
from inferd.wire.observed import Overview


class _Places(Struct, frozen=True):
    """What is told of the capabilities of a backend."""

    n_slots: int = 0
    n_ctx: int = 0


def managed_backends(reply: Reply) -> list[ManagedBackend]:
    """Return the backends of a reply to ``backends``."""
    listed = [] if reply.backends is UNSET else reply.backends
    return [_backend(each) for each in listed]


def _backend(info: BackendInfo) -> ManagedBackend:
    places = msgspec.json.decode(info.capabilities, type=_Places)
    return ManagedBackend(
        name=info.name,
        ready=info.ready,
        aliases=() if info.aliases is UNSET else tuple(info.aliases),
        state=None if info.state is UNSET else info.state,
        unavailable=None if info.unavailable is UNSET else info.unavailable,
        n_slots=places.n_slots or None,
        n_ctx=places.n_ctx or None,
    )


def managed_machine(
    requests: Reply, metrics: Reply, overview: Overview
) -> ManagedMachine:
    """Return what the replies to ``requests``, ``metrics`` and ``top`` say.

    Bounds: ``MAX_TOLD_REQUESTS``; those that run come first, then the order of the queue.
    """
    listed = [] if requests.requests is UNSET else sorted(requests.requests, key=_order)
    n_omitted = 0 if requests.omitted is UNSET else requests.omitted
    told = listed[:MAX_TOLD_REQUESTS]
    return ManagedMachine(
        requests=tuple(managed_request(each) for each in told),
        n_omitted=n_omitted + len(listed) - len(told),
        overview=overview,
        metrics="" if metrics.text is UNSET else metrics.text,
    )


def _order(info: RequestInfo) -> tuple[bool, float, float]:
    position = float("inf") if info.position is UNSET else info.position
    return info.phase == "queued", position, -info.age_ms


def managed_request(info: RequestInfo) -> ManagedRequest:
    """Return a request without its id, which is a text of its client."""
    return ManagedRequest(
        uid=info.uid,
        principal=None if info.principal is UNSET else info.principal,
        socket=info.socket,
        phase=info.phase,
        age_ms=info.age_ms,
        backend=None if info.backend is UNSET else info.backend,
        position=None if info.position is UNSET else info.position,
        output_tokens=info.output_tokens,
    )


def managed_log(reply: Reply) -> ManagedLog:
    """Return the lines of a reply to ``log``."""
    lines: Sequence[str] = () if reply.lines is UNSET else reply.lines
    return ManagedLog(lines=tuple(lines))
