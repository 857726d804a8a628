"""KV cache states of paused sequences in host memory, limited per user."""

from collections import Counter

import numpy as np
import numpy.typing as npt

from inferd.backend.caller import sharer_of
from inferd.worker.llama.generate.sequence import RunningSequence

__all__ = ["PausedStates"]

State = npt.NDArray[np.uint8]


class PausedStates:
    """Paused sequences by ticket, with their saved states as far as memory allows.

    A sequence without a saved state is decoded again from its tokens. If memory is full, a
    user with more than an even share loses the newest state, which may be the one to add.

    Args:
        max_bytes: host memory for all states.

    Laws (held by property tests): states never exceed ``max_bytes``; no user loses any of an
    even share to other users.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._paused: dict[int, tuple[RunningSequence, State | None]] = {}

    def __contains__(self, ticket: int) -> bool:
        """Tell whether a sequence is paused."""
        return ticket in self._paused

    @property
    def n_bytes(self) -> int:
        """Host memory that states take."""
        return sum(n for _, n in self._sizes())

    def make_room(self, owner: int, n_bytes: int) -> bool:
        """Evict states until one of ``n_bytes`` of this user fits; false if it may not."""
        while self.n_bytes + n_bytes > self._max_bytes:
            if (victim := self._newest_over_share(owner, n_bytes)) is None:
                return False
            self._paused[victim] = (self._paused[victim][0], None)
        return True

    def put(self, sequence: RunningSequence, state: State | None) -> None:
        """Add a sequence; with its state only after ``make_room`` for it."""
        self._paused[sequence.ticket] = (sequence, state)

    def take(self, ticket: int) -> tuple[RunningSequence, State | None] | None:
        """Remove and return a sequence, if it is there."""
        return self._paused.pop(ticket, None)

    def forget_states(self) -> None:
        """Drop all states: they may contain NaN."""
        self._paused = {
            ticket: (sequence, None) for ticket, (sequence, _) in self._paused.items()
        }

    def _newest_over_share(self, owner: int, n_bytes: int) -> int | None:
        """Return the ticket of the newest state of another user over an even share."""
        held = Counter({sharer_of(owner): n_bytes})
        for ticket, n in self._sizes():
            held[self._sharer_of(ticket)] += n
        share = self._max_bytes / len(held)
        over = [
            ticket
            for ticket, _ in self._sizes()
            if self._sharer_of(ticket) != sharer_of(owner)
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
        return sharer_of(self._paused[ticket][0].job.owner)
