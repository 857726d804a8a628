"""The answer to ``explain``: the records of those requests that a user may know of."""

from datetime import UTC, datetime

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from inferd.limits.server import MAX_LISTED_EXPLAINED
from inferd.server.history.record import life_of, record_of
from inferd.server.inflight import InFlight
from inferd.wire.commands import Command, Reply
from inferd.wire.observed import ExplainedRequest


def explain(command: Command, in_flight: InFlight, owner: int | None) -> Reply:
    """Answer ``explain``.

    Args:
        command: names an id, a number, or nothing: then all are meant.
        in_flight: the requests that wait and run, and those that have ended.
        owner: whose requests are told; ``None`` for everybody's, to an operator.

    Bounds:
        ``MAX_LISTED_EXPLAINED`` records. Looks at no more requests than the owner has, and
        at those with the id or number that is asked for where these are fewer.
    """
    number = None if command.number is UNSET else command.number
    kept = in_flight.ended.index
    present = in_flight.index.find(owner=owner, request_id=command.id, number=number)
    found = kept.find(owner=owner, request_id=command.id, number=number)
    n_found = len(present) + len(found)
    own = kept.of(owner)
    since_ns = next((each.arrived_ns for each in own.values()), UNSET)
    if not n_found and (command.id is not None or number is not None):
        error = _unknown(command, len(own), since_ns)
        return Reply(command="explain", ok=False, error=error)
    newest = present[::-1][:MAX_LISTED_EXPLAINED]
    lives = [life_of(each, has_ended=False) for each in newest]
    lives += found[::-1][: MAX_LISTED_EXPLAINED - len(lives)]
    told = [record_of(each) for each in lives]
    return Reply(
        command="explain",
        ok=True,
        explained=told if owner is None else [_without_others(each) for each in told],
        omitted=n_found - len(told) or UNSET,
        since_ns=since_ns,
    )


def _without_others(record: ExplainedRequest) -> ExplainedRequest:
    """Leave out whose requests it waited for: who they are is nobody else's business."""
    return replace(record, waited_for=UNSET)


def _unknown(command: Command, n_ended: int, since_ns: int | UnsetType) -> str:
    """Say that no such request is known, and how far back those go that are."""
    parts: list[str] = []
    if command.id is not None:
        parts.append(f"the id {msgspec.json.encode(command.id[:64]).decode()}")
    if command.number is not UNSET:
        parts.append(f"the number {command.number}")
    text = f"no request with {' and '.join(parts)} is known: "
    if since_ns is UNSET:
        return f"{text}none that has ended is kept"
    since = datetime.fromtimestamp(since_ns / 1e9, UTC)
    return (
        f"{text}of those that have ended the last {n_ended} are kept, since "
        f"{since:%Y-%m-%d %H:%M:%S} UTC"
    )
