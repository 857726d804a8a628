"""Users and their requests on a gate, as a schedule says, with time that jumps."""

import heapq
import itertools
import math
from collections import Counter
from dataclasses import dataclass, field

from inferd.admission.control import Admission, RequestTraits
from inferd.backend.caller import Caller

QUANTUM_S = 2.0


@dataclass
class Visit:
    """A request: when it comes, whose it is, how long it has to run."""

    at: float
    uid: int
    needs_s: float
    left_s: float = field(init=False)
    began: list[float] = field(default_factory=list)
    """When it got a permit, each time."""
    lost: list[float] = field(default_factory=list)
    """When it was asked to give it back, each time."""
    ended: float = math.nan
    principal: str = ""
    """For whom its user asks."""

    def __post_init__(self) -> None:
        self.left_s = self.needs_s


class Schedule:
    """Runs visits; one that is asked to pause does so after ``pause_s`` at the latest.

    Args:
        visits: all of them; their numbers are their tickets.
        max_active: permits.
        pause_s: seconds from being asked to standing still, of one after the other.
        quantum_s: of the gate.
        gateway_weight: of a user with several principals, at most.
    """

    def __init__(
        self,
        visits: list[Visit],
        *,
        max_active: int,
        pause_s: list[float],
        quantum_s: float = QUANTUM_S,
        gateway_weight: int = 1,
    ) -> None:
        self.gate = Admission(
            max_active=max_active,
            max_queued=1000,
            quantum_s=quantum_s,
            gateway_weight=gateway_weight,
        )
        self.visits = visits
        self.max_active = max_active
        self.now = 0.0
        self.pause_s = max(pause_s)
        self.bounds: dict[int, float] = {}
        """By when each user that comes without a permit has one, by ticket."""
        self._pauses = itertools.cycle(pause_s)
        self._events: list[tuple[float, int, str, int, int]] = []
        self._order = itertools.count()
        self._running: dict[int, float] = {}
        self._stints: Counter[int] = Counter()
        self._there: set[int] = set()

    def run(self) -> None:
        """Run all of them to their ends."""
        for ticket, visit in enumerate(self.visits):
            self._plan(visit.at, "come", ticket)
        while True:
            due = self.gate.next_preemption(now=self.now)
            if due.ticket is not None:
                self.visits[due.ticket].lost.append(self.now)
                self._plan(self.now + next(self._pauses), "stop", due.ticket)
                continue
            if not self._events and due.at == math.inf:
                return
            if self._events and self._events[0][0] <= due.at:
                self.now, _, what, ticket, stint = heapq.heappop(self._events)
                self._happen(what, ticket, stint)
            else:
                self.now = due.at

    def _happen(self, what: str, ticket: int, stint: int) -> None:
        if what == "come":
            self._come(ticket)
        elif ticket in self._running and stint == self._stints[ticket]:
            visit = self.visits[ticket]
            visit.left_s -= self.now - self._running.pop(ticket)
            if what == "stop":
                self._start(self.gate.note_paused(ticket, now=self.now))
            else:
                visit.ended = self.now
                self._there.discard(ticket)
                self._start(self.gate.leave(ticket, now=self.now))

    def _come(self, ticket: int) -> None:
        uid = self.visits[ticket].uid
        is_new = all(self.visits[each].uid != uid for each in self._there)
        claim = RequestTraits(Caller(uid, self.visits[ticket].principal))
        ahead = {self.visits[each].uid for each in self.gate.order()}
        self._there.add(ticket)
        if self.gate.arrive(ticket, claim, now=self.now):
            self._start(ticket)
        elif is_new:
            rounds = math.ceil((len(ahead) + 1) / self.max_active)
            self.bounds[ticket] = self.now + rounds * (QUANTUM_S + self.pause_s)

    def _start(self, ticket: int | None) -> None:
        if ticket is None:
            return
        self._running[ticket] = self.now
        self._stints[ticket] += 1
        self.visits[ticket].began.append(self.now)
        self._plan(self.now + self.visits[ticket].left_s, "end", ticket)

    def _plan(self, at: float, what: str, ticket: int) -> None:
        stint = self._stints[ticket]
        heapq.heappush(self._events, (at, next(self._order), what, ticket, stint))
