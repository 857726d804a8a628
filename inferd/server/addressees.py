"""Lines about requests that were sent before: cancels, and appends."""

from collections.abc import Iterable, Sequence

from inferd.server.activity import Activity
from inferd.server.custody import Parcel
from inferd.wire.speech import AppendLine


def hand_on(
    line: AppendLine, n_bytes: int, parcel: Parcel, present: Iterable[Activity]
) -> None:
    """Hand a line on to the first request that it can be meant for, if there is one.

    Args:
        line: as it was read.
        n_bytes: how long it is.
        parcel: what came with it: closed here, whatever becomes of it.
        present: requests of its connection, the earliest first.
    """
    able = [
        each
        for each in present
        if each.request_id == line.id and not each.appends.is_closed
    ]
    if not able:  # it lost the race
        parcel.close()
        return
    takers = [each for each in able if each.appends.takes(line.attachment_id)]
    activity = (takers or able)[0]
    if fault := activity.appends.put(line, n_bytes, parcel):
        activity.fail(fault)


def cancel_all(request_id: str, present: Sequence[Activity]) -> None:
    """Cancel the requests of an id."""
    for activity in present:
        if activity.request_id == request_id:
            activity.cancel()
