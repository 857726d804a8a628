"""Preemption: choose which running request gives its permit back, and when.

The callers who run or wait have shares of the permits, as ``shares`` says: equal ones, but for
the principals of a gateway that has many. While a waiting caller has less than its share,
another has more; one of its requests is paused once it has run for a quantum.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from inferd.admission.fair_queue import QueueEntry
from inferd.admission.quota import Charge
from inferd.admission.shares import NOT_FIRST, First, Shares
from inferd.backend.caller import NO_CALLER, Caller

STARTED_RANK: Final = -(2**63)
"""Rank of a request that has run before: it resumes before any new request of its user
begins, so a user has no more started requests than there are permits."""


class RequestTraits(NamedTuple):
    """Properties of a request that matter for admission."""

    caller: Caller = NO_CALLER
    """Who asks."""
    priority: int = 0
    """Among the same user's requests, higher first."""
    n_bytes: int = 0
    """Bytes of the request's line."""
    writes: bool = True
    """Whether it generates text. A person usually waits for that, while programs request
    vectors and scores, many at a time."""
    is_live: bool = False
    """Whether audio is appended to it while it runs."""
    backend: str = ""
    """The backend that will serve it, whose requests can be held back."""


@dataclass(slots=True)
class AdmittedRequest:
    """A request that waits, runs or is paused."""

    traits: RequestTraits
    entry: QueueEntry
    first: First = NOT_FIRST
    """Whether its caller had no request when it arrived, or none that generates text."""
    n_tokens: int = 0
    started_at: float | None = None
    """Time at which it got its permit; ``None`` while it has none."""
    paused_at: float | None = None
    """Time at which it was last preempted, if it waits to resume."""
    is_new: bool = True
    """Whether it has never had a permit."""
    is_preempting: bool = False
    """Whether it was asked to give its permit back."""
    is_idle: bool = False
    """Whether it neither runs nor waits, as it has nothing to do."""
    is_held: bool = False
    """Whether it waits for its backend, and so cannot get a permit."""

    def charge(self, units: int) -> Charge:
        """Make a charge for this request."""
        return Charge(self.traits.caller, units, self.first)


class Preemption(NamedTuple):
    """A decision about the next preemption."""

    at: float = math.inf
    """Time, in seconds, at which a request is to be paused if nothing changes."""
    ticket: int | None = None
    """The request, if it is to be paused now."""


def next_preemption(  # noqa: PLR0913  # the state, and every limit
    running: Mapping[int, AdmittedRequest],
    queues: Iterable[Sequence[AdmittedRequest]],
    shares: Shares,
    *,
    max_active: int,
    quantum_s: float,
    now: float,
) -> Preemption:
    """Return which request is to be paused next.

    Permits that are being given back already count as given to waiting requests. Of several
    callers over their share, the one with the most permits is chosen, of equals the one whose
    request has run longest; of its requests, the one that would resume last.

    Args:
        running: requests that hold a permit, by ticket.
        queues: waiting requests of every caller, all in the order of service.
        shares: of the permits, among the callers of all these.
        max_active: number of permits.
        quantum_s: shortest time before a permit is taken back, in seconds.
        now: seconds, on the clock of the requests' times.

    Cost: at most the square of the number of callers, per request being preempted.
    """
    if len(shares) == 1:  # nobody else waits
        return Preemption()
    holding = [each for each in running.values() if not each.is_preempting]
    held = Counter(each.traits.caller for each in holding)
    n_permits = len(running) - len(holding)
    heads: Iterable[AdmittedRequest] = (queue[0] for queue in queues)
    if n_permits:
        heads = _heads([*queues], held, shares, n_permits=n_permits)
    callers_over = {
        each for each, n in held.items() if shares.excess(n, max_active, each) > 0
    }
    over = [each for each in holding if each.traits.caller in callers_over]
    if not over:
        return Preemption()
    preempting = {each.traits.caller for each in running.values() if each.is_preempting}

    under = (
        each
        for each in heads
        if shares.excess(held[each.traits.caller], max_active, each.traits.caller) < 0
        and each.traits.caller not in preempting  # its own request resumes first
    )
    may_preempt_at = _may_preempt_at(under, quantum_s)
    if may_preempt_at == math.inf:
        return Preemption()
    at = max(may_preempt_at, min(_end_of_quantum(each, quantum_s) for each in over))
    if at > now:
        return Preemption(at)
    ripe = [each for each in over if _end_of_quantum(each, quantum_s) <= now]
    return Preemption(at, _choose(ripe, held).entry.ticket)


def _heads(
    queues: Sequence[Sequence[AdmittedRequest]],
    held: Counter[Caller],
    shares: Shares,
    *,
    n_permits: int,
) -> Iterable[AdmittedRequest]:
    """Return the next request of every caller after some permits are given out.

    Args:
        queues: waiting requests by caller.
        held: permits by caller; the permits given out are added.
        shares: of the permits.
        n_permits: permits to give out.
    """
    if not n_permits:
        return (queue[0] for queue in queues)
    callers = [queue[0].traits.caller for queue in queues]
    turns = {user: turn for turn, (user, _) in reversed([*enumerate(callers)])}
    waiting: list[Iterator[AdmittedRequest]] = [iter(queue) for queue in queues]
    heads: list[AdmittedRequest | None] = [next(queue, None) for queue in waiting]
    of_users = Counter[int]()
    for (user, _), n in held.items():
        of_users[user] += n

    def place(index: int) -> tuple[int, int, int]:
        caller = callers[index]
        n_rounds = of_users[caller.user] // shares.weight(caller.user)
        return n_rounds, turns[caller.user], held[caller]

    for _ in range(n_permits):
        present = [n for n, head in enumerate(heads) if head is not None]
        if not present:
            break
        index = min(present, key=place)
        held[callers[index]] += 1
        user = callers[index].user
        of_users[user] += 1
        heads[index] = next(waiting[index], None)
    return [head for head in heads if head is not None]


def _may_preempt_at(under: Iterable[AdmittedRequest], quantum_s: float) -> float:
    """Return when others may be preempted for one of these: at once unless it was paused."""
    at = math.inf
    for each in under:
        if each.paused_at is None:
            return -math.inf
        at = min(at, each.paused_at + quantum_s)
    return at


def _end_of_quantum(running: AdmittedRequest, quantum_s: float) -> float:
    assert running.started_at is not None  # noqa: S101  # it has a permit
    return running.started_at + quantum_s


def _choose(ripe: Sequence[AdmittedRequest], held: Counter[Caller]) -> AdmittedRequest:
    """Choose the request to preempt."""
    first = min(
        ripe, key=lambda each: (-held[each.traits.caller], each.started_at or 0.0)
    )
    own = (each for each in ripe if each.traits.caller == first.traits.caller)
    return max(own, key=lambda each: each.entry)
