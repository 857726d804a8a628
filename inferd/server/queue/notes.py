"""What is noted of a request that waits, for those who ask why it took so long."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from inferd.backend.caller import Caller
from inferd.limits.server import MAX_NOTED_HOLDERS, MAX_NOTED_POSITIONS


@dataclass(slots=True)
class QueueNotes:
    """What a request waited for.

    Bounds: ``MAX_NOTED_HOLDERS`` callers, ``MAX_NOTED_POSITIONS`` positions.
    """

    n_waiting: int | None = None
    """Requests that waited when it came, if it was not granted a permit at once."""
    holders: dict[Caller, int] = field(default_factory=dict)
    """Who held permits then, or when its own was taken back, and how many."""
    positions: list[int] = field(default_factory=list)
    """The positions that it had, the last one always."""

    def waits(self, callers: Iterable[Caller]) -> None:
        """Note who holds each permit, while this request gets none."""
        for caller in callers:
            if caller in self.holders or len(self.holders) < MAX_NOTED_HOLDERS:
                self.holders[caller] = self.holders.get(caller, 0) + 1

    def moved(self, position: int) -> None:
        """Note a position."""
        del self.positions[MAX_NOTED_POSITIONS - 1 :]
        self.positions.append(position)
