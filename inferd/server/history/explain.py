"""The answer to ``explain``: the records of those requests that a user may know of."""

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from inferd.limits.server import MAX_LISTED_EXPLAINED
from inferd.server.history.record import Life, cut_id, life_of, record_of
from inferd.server.inflight import InFlight
from inferd.wire.commands import Command, Reply
from inferd.wire.observed import ExplainedRequest


def explain(command: Command, in_flight: InFlight, owner: int | None) -> Reply:
    """Answer ``explain``.

    Args:
        command: names an id, a number, or nothing: then all are meant.
        in_flight: the requests that wait and run, and those that have ended.
        owner: whose requests are told; ``None`` for everybody's, to an operator.

    Bounds: ``MAX_LISTED_EXPLAINED`` records.
    """
    ended = [each for each in in_flight.ended if owner in (None, each.peer.owner)]
    present = [
        each
        for each in in_flight
        if owner in (None, each.peer.owner)
        and _is_meant(command, cut_id(each.request_id), each.number)
    ]
    found = [each for each in ended if _is_meant(command, each.request_id, each.number)]
    n_found = len(present) + len(found)
    if not n_found and (command.id is not None or command.number is not UNSET):
        return Reply(command="explain", ok=False, error=_unknown(command, ended))
    newest = present[::-1][:MAX_LISTED_EXPLAINED]
    lives = [life_of(each, has_ended=False) for each in newest]
    lives += found[: MAX_LISTED_EXPLAINED - len(lives)]
    told = [record_of(each) for each in lives]
    return Reply(
        command="explain",
        ok=True,
        explained=told if owner is None else [_without_others(each) for each in told],
        omitted=n_found - len(told) or UNSET,
        since_ns=ended[-1].arrived_ns if ended else UNSET,
    )


def _is_meant(command: Command, request_id: str, number: int) -> bool:
    if command.id is not None and cut_id(command.id) != request_id:
        return False
    return command.number in (UNSET, number)


def _without_others(record: ExplainedRequest) -> ExplainedRequest:
    """Leave out whose requests it waited for: who they are is nobody else's business."""
    return replace(record, waited_for=UNSET)


def _unknown(command: Command, ended: Sequence[Life]) -> str:
    """Say that no such request is known, and how far back those go that are."""
    parts: list[str] = []
    if command.id is not None:
        parts.append(f"the id {msgspec.json.encode(command.id[:64]).decode()}")
    if command.number is not UNSET:
        parts.append(f"the number {command.number}")
    text = f"no request with {' and '.join(parts)} is known: "
    if not ended:
        return f"{text}none that has ended is kept"
    since = datetime.fromtimestamp(ended[-1].arrived_ns / 1e9, UTC)
    n_ended = len(ended)
    return (
        f"{text}of those that have ended the last {n_ended} are kept, since "
        f"{since:%Y-%m-%d %H:%M:%S} UTC"
    )
