"""States of paused sequences in host memory, within a bound that users share."""

from collections import Counter

import numpy as np
import numpy.typing as npt

from inferd.job import NOBODY
from inferd.worker.llama.sequence import Sequence

__all__ = ["Pauses"]

State = npt.NDArray[np.uint8]


class Pauses:
    """Paused sequences, by ticket, with their states as far as there is room.

    A sequence without its state is read again from its tokens. Where there is no room, who
    has more than an even share loses the newest, which may be the one that comes.

    Args:
        max_bytes: of all states.

    Laws (held by property tests): states are never over the bound; nobody loses an even
    share of it to others.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._paused: dict[int, tuple[Sequence, State | None]] = {}

    def __contains__(self, ticket: int) -> bool:
        """Tell whether a sequence is paused."""
        return ticket in self._paused

    @property
    def n_bytes(self) -> int:
        """Host memory that states take."""
        return sum(n for _, n in self._sizes())

    def has_room(self, owner: int, n_bytes: int) -> bool:
        """Make room for a state of a user's, if it may have so much."""
        while self.n_bytes + n_bytes > self._max_bytes:
            if (victim := self._newest_over_share(owner, n_bytes)) is None:
                return False
            self._paused[victim] = (self._paused[victim][0], None)
        return True

    def put(self, sequence: Sequence, state: State | None) -> None:
        """Add a sequence; its state only where room was made for it."""
        self._paused[sequence.ticket] = (sequence, state)

    def take(self, ticket: int) -> tuple[Sequence, State | None] | None:
        """Take a sequence out, if it is there."""
        return self._paused.pop(ticket, None)

    def forget_states(self) -> None:
        """Drop all states: they may be spoilt."""
        self._paused = {
            ticket: (sequence, None) for ticket, (sequence, _) in self._paused.items()
        }

    def _newest_over_share(self, owner: int, n_bytes: int) -> int | None:
        """Find the newest state of another user who has more than an even share."""
        held = Counter({_sharer(owner): n_bytes})
        for ticket, n in self._sizes():
            held[self._sharer_of(ticket)] += n
        share = self._max_bytes / len(held)
        over = [
            ticket
            for ticket, _ in self._sizes()
            if self._sharer_of(ticket) != _sharer(owner)
            and held[self._sharer_of(ticket)] > share
        ]
        return over[-1] if over else None

    def _sizes(self) -> list[tuple[int, int]]:
        return [
            (ticket, state.nbytes)
            for ticket, (_, state) in self._paused.items()
            if state is not None
        ]

    def _sharer_of(self, ticket: int) -> int:
        return _sharer(self._paused[ticket][0].job.owner)


def _sharer(owner: int) -> int:
    """Tell whose share something is in: all strangers have one."""
    return max(owner, NOBODY)
