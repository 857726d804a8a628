"""Admission control for the requests of all sockets: permits, a queue, and preemption.

It only counts and decides: it starts no tasks and reads no clock; callers pass the time. The
caller calls ``arrive`` once for each request, ``charge_tokens`` when its tokens are counted,
and ``leave`` once, however it ended. It asks ``next_preemption`` which request is to give
its permit back, and calls ``note_paused`` once that request has paused.
"""

import itertools
from collections.abc import Iterator

from inferd.admission.backlog import Backlog
from inferd.admission.fair_queue import FairQueue, QueueEntry
from inferd.admission.preemption import (
    STARTED_RANK,
    AdmittedRequest,
    Preemption,
    RequestTraits,
    next_preemption,
)
from inferd.admission.retry_after import RetryEstimate
from inferd.admission.users import UserRequests
from inferd.backend.caller import Caller
from inferd.errors import DrainingError, QueueFullError
from inferd.limits.admission import (
    GATEWAY_WEIGHT,
    MAX_LIVE_RECORDINGS,
    MAX_QUEUED_BYTES,
    MAX_QUEUED_TOKENS,
    QUANTUM_S,
)

__all__ = ["Admission", "RequestTraits"]


class Admission:
    """Admission control with ``max_active`` permits and ``max_queued`` queue positions.

    Invariants (verified by property tests):

    - At most ``max_active`` requests run, and none waits while a permit is free.
    - A free permit goes to the waiting user with the fewest permits. Users with equally
      many are served in turn: while a user waits, no other user is served twice, unless
      it has fewer permits then. Of the user's requests, a paused one comes first, then the
      one with the highest priority, then the earliest.
    - The share of a user is the number of permits divided by the users who run or wait.
      While a waiting user has less than its share, no other user has more than its own for
      longer than ``quantum_s``: one of its requests is asked to give its permit back. That
      request is never rejected afterwards.
    - No request is preempted within its first quantum, nor for a request that was paused
      less than a quantum ago. A single user is never preempted.
    - The n-th user to wait gets a permit after n / ``max_active`` quanta, rounded up, plus
      as many times the time that pausing a request takes.
    - A single user may use the whole queue. If several users wait, none gets more than its
      share of each limit, an equal part; it keeps what it has.
    - Other users cannot keep out the first request of a user: of one who has no request
      here, or none that generates text. At most ``max_queued`` of them wait. Up to
      that number, one is admitted if it is no larger than an even share of each limit among
      them, whatever else waits, and a larger one if all of them fit.
    - In addition to other requests, n first requests use each limit at most
      1 + 1/2 + … + 1/n times: less than three times for ten of them.
    - What is said of users holds of a gateway's principals among each other, in the gateway's
      share of each limit. A gateway counts as several users: as its principals who run or
      wait, at most ``gateway_weight``. It has as many turns and as large a share.
    - A request may have any size if nothing else counts towards the limit.
    - New requests of a held backend wait, and count in all limits, but get no permit
      before it is released; others pass them. A request that had a permit is not held.
    - After all requests have left, all permits are free and no state of any user is kept.

    Args:
        max_active: running requests.
        max_queued: waiting requests.
        max_queued_tokens: tokens of waiting requests, as far as they are counted.
        max_queued_bytes: bytes of the lines of waiting requests.
        quantum_s: shortest time before a permit is taken back, in seconds; infinite to
            never preempt.
        max_live: requests of one user with live audio.
        gateway_weight: users that a gateway counts as at most.
    """

    def __init__(  # noqa: PLR0913  # every one is a limit of its own
        self,
        *,
        max_active: int,
        max_queued: int,
        max_queued_tokens: int = MAX_QUEUED_TOKENS,
        max_queued_bytes: int = MAX_QUEUED_BYTES,
        quantum_s: float = QUANTUM_S,
        max_live: int = MAX_LIVE_RECORDINGS,
        gateway_weight: int = GATEWAY_WEIGHT,
    ) -> None:
        self._max_active = max_active
        self._backlog = Backlog(
            max_requests=max_queued,
            max_tokens=max_queued_tokens,
            max_bytes=max_queued_bytes,
            max_weight=gateway_weight,
        )
        self._quantum_s = quantum_s
        self._max_live = max_live
        self._requests: dict[int, AdmittedRequest] = {}
        self._running: dict[int, AdmittedRequest] = {}
        self.n_pauses = 0
        """Number of preemptions so far."""
        self._users = UserRequests()
        self._queue = FairQueue(gateway_weight)
        self._held: dict[str, dict[int, AdmittedRequest]] = {}  # by backend
        self._arrivals = itertools.count()
        self._retry_estimate = RetryEstimate()
        self._is_open = True

    @property
    def max_active(self) -> int:
        """The number of permits."""
        return self._max_active

    @property
    def active(self) -> int:
        """Requests that hold a permit."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Requests that wait for their first permit."""
        return self._backlog.requests.spent

    @property
    def n_paused(self) -> int:
        """Requests that had a permit and have none now: they wait to resume, or are idle."""
        return len(self._requests) - self.active - self.waiting

    @property
    def waiting_tokens(self) -> int:
        """Tokens of waiting requests, as far as they are counted."""
        return self._backlog.tokens.spent

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the lines of waiting requests."""
        return self._backlog.bytes.spent

    def holders(self) -> Iterator[Caller]:
        """Yield who holds each permit."""
        return (request.traits.caller for request in self._running.values())

    def cap_active(self, max_active: int) -> None:
        """Lower the number of permits; only before any request arrives."""
        self._max_active = min(self._max_active, max_active)

    def set_quantum(self, quantum_s: float) -> None:
        """Change the shortest time before a permit is taken back, in seconds."""
        self._quantum_s = quantum_s

    def set_max_live(self, max_live: int) -> None:
        """Change the limit on one user's requests with live audio; present ones stay."""
        self._max_live = max_live

    def set_gateway_weight(self, gateway_weight: int) -> None:
        """Change the number of users that a gateway counts as at most."""
        self._queue.max_weight = self._backlog.max_weight = gateway_weight

    def resize(
        self, *, max_queued: int, max_queued_tokens: int, max_queued_bytes: int
    ) -> None:
        """Change the limits of the queue; requests that wait already stay."""
        self._backlog.resize(
            max_requests=max_queued,
            max_tokens=max_queued_tokens,
            max_bytes=max_queued_bytes,
        )

    def arrive(self, ticket: int, traits: RequestTraits, *, now: float) -> bool:
        """Admit a request; return true if it runs now, false if it waits.

        Args:
            ticket: a number that no other present request has.
            traits: of the request.
            now: seconds on a monotonic clock.

        Raises:
            QueueFullError: the request is rejected.
            DrainingError: no requests are admitted any more.
        """
        if not self._is_open:
            raise DrainingError
        weight = self._queue.max_weight
        if traits.is_live and not self._users.may_go_live(
            traits, self._max_live, weight
        ):
            raise self._queue_full(depth=self.waiting)
        entry = QueueEntry(-traits.priority, next(self._arrivals), ticket)
        request = AdmittedRequest(traits, entry, self._users.first(traits))
        held = self._held.get(traits.backend)
        runs = self.active < self._max_active and held is None
        if runs:
            self._queue.note_served(traits.caller)
            self._start(request, now)
        elif self._backlog.try_add(request):
            self._put(request, held)
        else:
            raise self._queue_full(depth=self.waiting)
        self._requests[ticket] = request
        self._users.add(traits)
        return runs

    def charge_tokens(self, ticket: int, n_tokens: int) -> None:
        """Charge the prompt tokens of a request, once; they count while it waits to begin.

        Raises:
            QueueFullError: the tokens do not fit; the request has to leave.
        """
        request = self._requests[ticket]
        if request.is_new and not self._backlog.try_add_tokens(request, n_tokens):
            raise self._queue_full(depth=self.waiting - 1)

    def leave(self, ticket: int, *, now: float) -> int | None:
        """Remove a request, if present; return the ticket of the one that runs instead."""
        request = self._requests.pop(ticket, None)
        if request is None:
            return None
        self._users.remove(request.traits)
        if ticket in self._running:
            self._stop(request, now)
            return self._grant_next(now)
        if request.is_held:
            del self._held[request.traits.backend][ticket]
        elif not request.is_idle:
            self._queue.remove(request.traits.caller, request.entry)
        if request.is_new:
            self._backlog.release(request)
        return None

    # --- preemption ---------------------------------------------------------------------

    def next_preemption(self, *, now: float) -> Preemption:
        """Return which request is to be paused next, and mark it if that is now.

        Call it again until it returns no ticket, and after every change while a request
        waits.
        """
        if not self._queue:
            return Preemption()
        n_preempting = sum(request.is_preempting for request in self._running.values())
        found = next_preemption(
            self._running,
            (
                [self._requests[entry.ticket] for entry in queue[: n_preempting + 1]]
                for queue in self._queue.by_caller()
            ),
            self._queue.shares,
            max_active=self._max_active,
            quantum_s=self._quantum_s,
            now=now,
        )
        if found.ticket is not None:
            self._running[found.ticket].is_preempting = True
        return found

    def note_paused(self, ticket: int, *, now: float, waits: bool = True) -> int | None:
        """Take a permit back; return the ticket of the request that runs instead, if any.

        It may be the same request, if those that waited have left.

        Args:
            ticket: of a request that has paused; ignored if it has left.
            now: as in ``arrive``.
            waits: whether it waits to go on now; otherwise it is idle until ``resume``.
        """
        request = self._running.get(ticket)
        if request is None:
            return None
        self._stop(request, now)
        request.entry = request.entry._replace(rank=STARTED_RANK)
        request.paused_at = now
        if waits:
            self.n_pauses += 1
            self._queue.put(request.traits.caller, request.entry)
        else:
            request.is_idle = True
        return self._grant_next(now)

    def is_idle(self, ticket: int) -> bool:
        """Return whether a present request neither runs nor waits."""
        return self._requests[ticket].is_idle

    def resume(self, ticket: int, *, now: float) -> bool:
        """Resume an idle request; return true if it runs now, false if it waits."""
        request = self._requests[ticket]
        request.is_idle = False
        request.paused_at = None  # it was not preempted
        if self.active < self._max_active:
            self._queue.note_served(request.traits.caller)
            self._start(request, now)
            return True
        self._queue.put(request.traits.caller, request.entry)
        return False

    def _start(self, request: AdmittedRequest, now: float) -> None:
        request.started_at = now
        request.is_new = False
        self._running[request.entry.ticket] = request
        self._queue.begin(request.traits.caller)

    def _stop(self, request: AdmittedRequest, now: float) -> None:
        assert request.started_at is not None  # noqa: S101  # it has a permit
        self._retry_estimate.note(now - request.started_at)
        request.started_at = None
        request.is_preempting = False
        del self._running[request.entry.ticket]
        self._queue.end(request.traits.caller)

    def _grant_next(self, now: float) -> int | None:
        """Give a free permit to the next waiting request, if there is one."""
        if not self._queue:
            return None
        successor = self._requests[self._queue.take().ticket]
        if successor.is_new:
            self._backlog.release(successor)
        self._start(successor, now)
        return successor.entry.ticket

    # --- backends that are held ---------------------------------------------------------

    def hold(self, backend: str) -> None:
        """Grant no permits to new requests for a backend, until ``release``."""
        if backend in self._held:
            return
        held = self._held[backend] = dict[int, AdmittedRequest]()
        waiting = [entry for queue in self._queue.by_caller() for entry in queue]
        for request in [self._requests[entry.ticket] for entry in waiting]:
            if request.traits.backend == backend and request.is_new:
                self._queue.remove(request.traits.caller, request.entry)
                self._put(request, held)

    def release(self, backend: str, *, now: float) -> list[int]:
        """End ``hold``; return the tickets of the requests that run now."""
        for request in self._held.pop(backend, {}).values():
            self._put(request, None)
        granted: list[int] = []
        while self.active < self._max_active and self._queue:
            ticket = self._grant_next(now)
            assert ticket is not None  # noqa: S101  # one waits
            granted.append(ticket)
        return granted

    def _put(
        self, request: AdmittedRequest, held: dict[int, AdmittedRequest] | None
    ) -> None:
        """Have a new request wait for a permit, or for its backend if that is held."""
        request.is_held = held is not None
        if held is None:
            self._queue.put(request.traits.caller, request.entry)
        else:
            held[request.entry.ticket] = request

    # --- waiting requests ---------------------------------------------------------------

    def order(self) -> Iterator[int]:
        """Return the tickets of waiting requests in the order expected if none arrives.

        Those that wait for a backend come last.
        """
        yield from self._queue.order()
        for held in self._held.values():
            yield from held

    def close(self) -> None:
        """Reject all later arrivals; present requests go on."""
        self._is_open = False

    def _queue_full(self, *, depth: int) -> QueueFullError:
        """Make the error, with an estimate: the time until every user was served once."""
        retry_after_ms = self._retry_estimate.retry_after_ms(
            n_turns=max(1, self._queue.n_turns()),
            max_active=self._max_active,
        )
        return QueueFullError(depth=depth, retry_after_ms=retry_after_ms)
