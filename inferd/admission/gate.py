"""The gate that every request passes, whatever its socket.

It counts and decides; it knows no tasks, and no clock but the time that it is told. The
shell calls ``arrive`` once for each request, ``weigh`` when its tokens are counted, and
``leave`` once, whatever ended it.
"""

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from inferd.admission.budget import Amount, Budget
from inferd.admission.pace import Pace
from inferd.admission.ring import Place, Ring
from inferd.errors import DrainingError, QueueFullError
from inferd.limits import MAX_QUEUED_BYTES, MAX_QUEUED_TOKENS


class Claim(NamedTuple):
    """What the gate has to know of a request."""

    uid: int = -1
    """The caller's user."""
    priority: int = 0
    """Among the same user's requests, higher first."""
    n_bytes: int = 0
    """Of the line that it came in."""
    writes: bool = True
    """Whether it wants a text written. Somebody waits for that, as a rule; vectors and
    scores are asked for by programs, many at a time."""


@dataclass(slots=True)
class _Request:
    """One who is here."""

    claim: Claim
    place: Place
    is_first: bool
    """Whether nothing of its user's was here when it came, or nothing that writes."""
    n_tokens: int = 0
    started_at: float | None = None

    def amount(self, units: int) -> Amount:
        return Amount(self.claim.uid, units, self.is_first)


class Admission:
    """A gate with ``max_active`` permits and ``max_queued`` places to wait.

    Laws (held by property tests):

    - At most ``max_active`` run, and nobody waits while a permit is free.
    - Users take turns: before the turn of one who waits, no other user has two. It goes
      to that user's request with the highest priority, the earliest among equals.
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
    """

    def __init__(
        self,
        *,
        max_active: int,
        max_queued: int,
        max_queued_tokens: int = MAX_QUEUED_TOKENS,
        max_queued_bytes: int = MAX_QUEUED_BYTES,
    ) -> None:
        self._max_active = max_active
        self._has_queue = max_queued > 0
        self._places = Budget(max_queued)
        self._tokens = Budget(max_queued_tokens)
        self._bytes = Budget(max_queued_bytes)
        self._here: dict[int, _Request] = {}
        self._users: Counter[int] = Counter()
        self._writers: Counter[int] = Counter()
        self._ring = Ring()
        self._arrivals = itertools.count()
        self._pace = Pace()
        self._is_open = True

    @property
    def active(self) -> int:
        """Requests that hold a permit."""
        return len(self._here) - self.waiting

    @property
    def waiting(self) -> int:
        """Requests that wait for one."""
        return self._places.spent

    @property
    def waiting_tokens(self) -> int:
        """Tokens of those that wait, as far as they are counted."""
        return self._tokens.spent

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the lines that they came in."""
        return self._bytes.spent

    def bound(self, max_active: int) -> None:
        """Have no more permits than this; only before anybody arrives."""
        self._max_active = min(self._max_active, max_active)

    def resize(
        self, *, max_queued: int, max_queued_tokens: int, max_queued_bytes: int
    ) -> None:
        """Change what may wait; those who wait already stay."""
        self._has_queue = max_queued > 0
        self._places.bound = max_queued
        self._tokens.bound = max_queued_tokens
        self._bytes.bound = max_queued_bytes

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
        place = Place(-claim.priority, next(self._arrivals), ticket)
        request = _Request(claim, place, self._is_first(claim))
        runs = self.active < self._max_active
        if runs:
            request.started_at = now
            self._ring.pass_over(claim.uid)
        else:
            self._wait(request)
        self._here[ticket] = request
        self._users[claim.uid] += 1
        self._writers[claim.uid] += claim.writes
        return runs

    def weigh(self, ticket: int, n_tokens: int) -> None:
        """Note, once, what a request has to read: it matters while it waits.

        Raises:
            QueueFullError: too much waits already; this one has to leave.
        """
        request = self._here[ticket]
        if request.started_at is not None:
            return
        amount = request.amount(n_tokens)
        if not self._tokens.has_room(amount, n_users=len(self._ring)):
            raise self._refusal(depth=self.waiting - 1)
        request.n_tokens = n_tokens
        self._tokens.spend(amount)

    def leave(self, ticket: int, *, now: float) -> int | None:
        """Take a request out; give the ticket of the one that runs instead, if any.

        Leaving twice, or without having arrived, changes nothing.
        """
        request = self._here.pop(ticket, None)
        if request is None:
            return None
        self._forget(request.claim)
        if request.started_at is None:
            self._ring.remove(request.claim.uid, request.place)
            self._give_back(request)
            return None
        self._pace.note(now - request.started_at)
        if not self._ring:
            return None
        successor = self._here[self._ring.take().ticket]
        self._give_back(successor)
        successor.started_at = now
        return successor.place.ticket

    def order(self) -> Iterator[int]:
        """Give the tickets of those who wait, as they run if nobody else comes."""
        return self._ring.order()

    def close(self) -> None:
        """Turn every later arrival away; those inside go on."""
        self._is_open = False

    def _is_first(self, claim: Claim) -> bool:
        return not (self._writers if claim.writes else self._users)[claim.uid]

    def _wait(self, request: _Request) -> None:
        uid = request.claim.uid
        place, size = request.amount(1), request.amount(request.claim.n_bytes)
        n_users = len(self._ring) + (uid not in self._ring)
        if not (
            self._has_queue
            and self._places.has_room(place, n_users=n_users)
            and self._bytes.has_room(size, n_users=n_users)
        ):
            raise self._refusal(depth=self.waiting)
        self._places.spend(place)
        self._bytes.spend(size)
        self._ring.put(uid, request.place)

    def _give_back(self, request: _Request) -> None:
        """Free what a request took up while it waited."""
        self._places.give_back(request.amount(1))
        self._bytes.give_back(request.amount(request.claim.n_bytes))
        self._tokens.give_back(request.amount(request.n_tokens))

    def _forget(self, claim: Claim) -> None:
        self._users[claim.uid] -= 1
        self._writers[claim.uid] -= claim.writes
        if not self._users[claim.uid]:
            del self._users[claim.uid], self._writers[claim.uid]

    def _refusal(self, *, depth: int) -> QueueFullError:
        """Say how full it is, and when that may be over: after a turn of each user."""
        retry_after_ms = self._pace.retry_after_ms(
            n_turns=max(1, len(self._ring)), max_active=self._max_active
        )
        return QueueFullError(depth=depth, retry_after_ms=retry_after_ms)
