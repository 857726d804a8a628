"""The gate that every request passes, whatever its socket.

It counts and decides; it knows no tasks, and no clock but the time that it is told. The
shell calls ``arrive`` once for each request, ``weigh`` when its tokens are counted, and
``leave`` once, whatever ended it. It asks ``due`` whose permit is taken back and calls
``paused`` once that one stands still.
"""

import itertools
from collections import Counter
from collections.abc import Iterator

from inferd.admission.backlog import Backlog
from inferd.admission.pace import Pace
from inferd.admission.ring import Place, Ring
from inferd.admission.shares import STARTED, Claim, Due, Request, due
from inferd.admission.users import Users
from inferd.errors import DrainingError, QueueFullError
from inferd.limits import (
    MAX_LIVE_RECORDINGS,
    MAX_QUEUED_BYTES,
    MAX_QUEUED_TOKENS,
    QUANTUM_S,
)

__all__ = ["Admission", "Claim"]


class Admission:
    """A gate with ``max_active`` permits and ``max_queued`` places to wait.

    Laws (held by property tests):

    - At most ``max_active`` run, and nobody waits while a permit is free.
    - A permit that is free goes to the user who waits with fewest. Users with as many take
      turns: before the turn of one who waits, no other user has two, unless it has fewer
      permits then. It goes to that user's request that was paused, else to the one with
      the highest priority, the earliest among equals.
    - While a user waits who has less than its share of the permits, an equal part for each
      who runs or waits, no other has more than its own for longer than ``quantum_s``: one
      of its requests is asked to give its permit back. It is never refused afterwards.
    - Nobody is asked who has had a permit for less than that, and nobody for one who was
      paused less than that ago. Alone, a user is never asked.
    - Who has no permit gets one as soon as as many others as wait before it, divided by the
      permits and rounded up, have had a quantum one after the other.
    - Alone, a user may have every place. Where several wait, none gets one over its
      share, an equal part of each bound; what it has it keeps.
    - Others cannot keep out the first request of a user: of one who has nothing here, or
      nothing that is written. At most ``max_queued`` of these wait; while there are no
      more, one gets in if it is no larger than an even share of each bound among them,
      whatever else waits, and a larger one if all of them fit.
    - Beside what the bounds say of the others, n first requests take up each bound at most
      1 + 1/2 + … + 1/n times: less than three times if they are ten.
    - Where nothing is to be weighed against it, a request may be of any size.
    - After everybody left, every permit is free, and of nobody anything is remembered.

    Args:
        max_active: requests that run.
        max_queued: requests that wait.
        max_queued_tokens: tokens of those that wait, as far as they are counted.
        max_queued_bytes: bytes of the lines that they came in.
        quantum_s: seconds for which a permit is kept at the least; infinite for ever.
        max_live: requests of one user to which sound is appended.
    """

    def __init__(  # noqa: PLR0913  # each is a bound of its own
        self,
        *,
        max_active: int,
        max_queued: int,
        max_queued_tokens: int = MAX_QUEUED_TOKENS,
        max_queued_bytes: int = MAX_QUEUED_BYTES,
        quantum_s: float = QUANTUM_S,
        max_live: int = MAX_LIVE_RECORDINGS,
    ) -> None:
        self._max_active = max_active
        self._backlog = Backlog(
            max_requests=max_queued,
            max_tokens=max_queued_tokens,
            max_bytes=max_queued_bytes,
        )
        self._quantum_s = quantum_s
        self._max_live = max_live
        self._here: dict[int, Request] = {}
        self._running: dict[int, Request] = {}
        self._held: Counter[int] = Counter()
        self.n_pauses = 0
        """Permits that were taken back so far."""
        self._users = Users()
        self._ring = Ring()
        self._arrivals = itertools.count()
        self._pace = Pace()
        self._is_open = True

    @property
    def active(self) -> int:
        """Requests that hold a permit."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Requests that wait for their first one."""
        return self._backlog.places.spent

    @property
    def n_paused(self) -> int:
        """Requests that have had one, and have none: they wait, or are silent."""
        return len(self._here) - self.active - self.waiting

    @property
    def has_queue(self) -> bool:
        """Whether anybody waits, for the first permit or to go on."""
        return bool(self._ring)

    @property
    def waiting_tokens(self) -> int:
        """Tokens of those that wait, as far as they are counted."""
        return self._backlog.tokens.spent

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the lines that they came in."""
        return self._backlog.bytes.spent

    def bound(self, max_active: int) -> None:
        """Have no more permits than this; only before anybody arrives."""
        self._max_active = min(self._max_active, max_active)

    def pace(self, *, quantum_s: float, max_live: int) -> None:
        """Change for how long a permit is kept, and how many live recordings there are."""
        self._quantum_s = quantum_s
        self._max_live = max_live

    def resize(
        self, *, max_queued: int, max_queued_tokens: int, max_queued_bytes: int
    ) -> None:
        """Change what may wait; those who wait already stay."""
        self._backlog.resize(
            max_requests=max_queued,
            max_tokens=max_queued_tokens,
            max_bytes=max_queued_bytes,
        )

    def arrive(self, ticket: int, claim: Claim, *, now: float) -> bool:
        """Let a request in: true if it runs now, false if it waits.

        Args:
            ticket: a number no other present request has.
            claim: what it is.
            now: seconds, on any clock that does not go back.

        Raises:
            QueueFullError: it has to go, at once.
            DrainingError: the gate is closed.
        """
        if not self._is_open:
            raise DrainingError
        if claim.is_live and self._users.n_live(claim.uid) >= self._max_live:
            raise self._refusal(depth=self.waiting)
        place = Place(-claim.priority, next(self._arrivals), ticket)
        request = Request(claim, place, self._users.is_first(claim))
        runs = self.active < self._max_active
        if runs:
            self._ring.pass_over(claim.uid)
            self._start(request, now)
        elif self._backlog.takes(request):
            self._ring.put(claim.uid, place)
        else:
            raise self._refusal(depth=self.waiting)
        self._here[ticket] = request
        self._users.come(claim)
        return runs

    def weigh(self, ticket: int, n_tokens: int) -> None:
        """Note, once, what a request has to read: it matters while it waits to begin.

        Raises:
            QueueFullError: too much waits already; this one has to leave.
        """
        request = self._here[ticket]
        if request.is_new and not self._backlog.takes_tokens(request, n_tokens):
            raise self._refusal(depth=self.waiting - 1)

    def leave(self, ticket: int, *, now: float) -> int | None:
        """Take a request out; give the ticket of the one that runs instead, if any.

        Leaving twice, or without having arrived, changes nothing.
        """
        request = self._here.pop(ticket, None)
        if request is None:
            return None
        self._users.go(request.claim)
        if ticket in self._running:
            self._stop(request, now)
            return self._hand_on(now)
        if not request.is_silent:
            self._ring.remove(request.claim.uid, request.place)
        if request.is_new:
            self._backlog.give_back(request)
        return None

    # --- permits that are taken back ----------------------------------------------------

    def due(self, *, now: float) -> Due:
        """Tell which request is to be paused next: if that is now, it counts as asked.

        To be asked again until it names none, and after every change while somebody waits.
        """
        n_asked = sum(each.is_asked for each in self._running.values())
        found = due(
            self._running,
            [
                [self._here[place.ticket] for place in line[: n_asked + 1]]
                for line in self._ring.lines()
            ],
            max_active=self._max_active,
            quantum_s=self._quantum_s,
            now=now,
        )
        if found.ticket is not None:
            self._running[found.ticket].is_asked = True
        return found

    def paused(self, ticket: int, *, now: float, waits: bool = True) -> int | None:
        """Take a permit back; give the ticket of the one that runs instead, if any.

        It may be the same, if those who waited have left.

        Args:
            ticket: of one that stands still. One that has left changes nothing.
            now: as in ``arrive``.
            waits: whether it waits to go on at once, and not until ``wake``.
        """
        request = self._running.get(ticket)
        if request is None:
            return None
        self._stop(request, now)
        request.place = request.place._replace(rank=STARTED)
        request.paused_at = now
        if waits:
            self.n_pauses += 1
            self._ring.put(request.claim.uid, request.place)
        else:
            request.is_silent = True
        return self._hand_on(now)

    def is_silent(self, ticket: int) -> bool:
        """Tell whether one that is here neither runs nor waits."""
        return self._here[ticket].is_silent

    def wake(self, ticket: int, *, now: float) -> bool:
        """Let one that was silent go on: true if it runs now, false if it waits."""
        request = self._here[ticket]
        request.is_silent = False
        request.paused_at = None  # it did not wait, and has none to repay
        if self.active < self._max_active:
            self._ring.pass_over(request.claim.uid)
            self._start(request, now)
            return True
        self._ring.put(request.claim.uid, request.place)
        return False

    def _start(self, request: Request, now: float) -> None:
        request.started_at = now
        request.is_new = False
        self._running[request.place.ticket] = request
        self._held[request.claim.uid] += 1

    def _stop(self, request: Request, now: float) -> None:
        assert request.started_at is not None  # noqa: S101  # it has a permit
        self._pace.note(now - request.started_at)
        request.started_at = None
        request.is_asked = False
        del self._running[request.place.ticket]
        self._held[request.claim.uid] -= 1
        if not self._held[request.claim.uid]:
            del self._held[request.claim.uid]

    def _hand_on(self, now: float) -> int | None:
        """Give a permit that is free to the next, if anybody waits."""
        if not self._ring:
            return None
        successor = self._here[self._ring.take(self._held).ticket]
        if successor.is_new:
            self._backlog.give_back(successor)
        self._start(successor, now)
        return successor.place.ticket

    # --- those who wait -----------------------------------------------------------------

    def order(self) -> Iterator[int]:
        """Give the tickets of those who wait, about as they run if nobody else comes."""
        return self._ring.order(self._held)

    def close(self) -> None:
        """Turn every later arrival away; those inside go on."""
        self._is_open = False

    def _refusal(self, *, depth: int) -> QueueFullError:
        """Say how full it is, and when that may be over: after a turn of each user."""
        retry_after_ms = self._pace.retry_after_ms(
            n_turns=max(1, len(self._ring)), max_active=self._max_active
        )
        return QueueFullError(depth=depth, retry_after_ms=retry_after_ms)
