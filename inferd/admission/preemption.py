"""Preemption: choose which running request gives its permit back, and when.

The users who run or wait have equal shares of the permits. While a waiting user has less
than its share, another has more; one of its requests is paused once it has run for a
quantum.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from inferd.admission.fair_queue import QueueEntry
from inferd.admission.quota import Charge

STARTED_RANK: Final = -(2**63)
"""Rank of a request that has run before: it resumes before any new request of its user
begins, so a user has no more started requests than there are permits."""


class RequestTraits(NamedTuple):
    """Properties of a request that matter for admission."""

    uid: int = -1
    """The caller's user."""
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
    is_first: bool
    """Whether its user had no request when it arrived, or none that generates text."""
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
        return Charge(self.traits.uid, units, self.is_first)


class Preemption(NamedTuple):
    """A decision about the next preemption."""

    at: float = math.inf
    """Time, in seconds, at which a request is to be paused if nothing changes."""
    ticket: int | None = None
    """The request, if it is to be paused now."""


def next_preemption(
    running: Mapping[int, AdmittedRequest],
    queues: Sequence[Sequence[AdmittedRequest]],
    *,
    max_active: int,
    quantum_s: float,
    now: float,
) -> Preemption:
    """Return which request is to be paused next.

    Permits that are being given back already count as given to waiting requests. Of several
    users over their share, the one with the most permits is chosen, of equals the one whose
    request has run longest; of its requests, the one that would resume last.

    Args:
        running: requests that hold a permit, by ticket.
        queues: waiting requests of every user, all in the order of service.
        max_active: number of permits.
        quantum_s: shortest time before a permit is taken back, in seconds.
        now: seconds, on the clock of the requests' times.

    Cost: at most the square of the number of users, per request being preempted.
    """
    holding = [each for each in running.values() if not each.is_preempting]
    held = Counter(each.traits.uid for each in holding)
    users = {each.traits.uid for each in running.values()}
    users |= {queue[0].traits.uid for queue in queues}
    preempting = {each.traits.uid for each in running.values() if each.is_preempting}
    under = [
        each
        for each in _heads(queues, held, n_permits=len(running) - len(holding))
        if held[each.traits.uid] * len(users) < max_active
        and each.traits.uid not in preempting  # its own request resumes first
    ]
    over = [each for each in holding if held[each.traits.uid] * len(users) > max_active]
    if not under or not over:
        return Preemption()
    may_preempt_at = min(_may_preempt_at(each, quantum_s) for each in under)
    at = max(may_preempt_at, min(_end_of_quantum(each, quantum_s) for each in over))
    if at > now:
        return Preemption(at)
    ripe = [each for each in over if _end_of_quantum(each, quantum_s) <= now]
    return Preemption(at, _choose(ripe, held).entry.ticket)


def _heads(
    queues: Sequence[Sequence[AdmittedRequest]], held: Counter[int], *, n_permits: int
) -> Iterable[AdmittedRequest]:
    """Return the next request of every user after some permits are given out.

    Args:
        queues: waiting requests by user.
        held: permits by user; the permits given out are added.
        n_permits: permits to give out.
    """
    waiting: list[Iterator[AdmittedRequest]] = [iter(queue) for queue in queues]
    heads: list[AdmittedRequest | None] = [next(queue, None) for queue in waiting]
    for _ in range(n_permits):
        present = [n for n, head in enumerate(heads) if head is not None]
        if not present:
            break
        index = min(present, key=lambda n: held[queues[n][0].traits.uid])
        held[queues[index][0].traits.uid] += 1
        heads[index] = next(waiting[index], None)
    return [head for head in heads if head is not None]


def _may_preempt_at(waiting: AdmittedRequest, quantum_s: float) -> float:
    """Return when others may be preempted for a request: at once unless it was paused."""
    return -math.inf if waiting.paused_at is None else waiting.paused_at + quantum_s


def _end_of_quantum(running: AdmittedRequest, quantum_s: float) -> float:
    assert running.started_at is not None  # noqa: S101  # it has a permit
    return running.started_at + quantum_s


def _choose(ripe: Sequence[AdmittedRequest], held: Counter[int]) -> AdmittedRequest:
    """Choose the request to preempt."""
    first = min(ripe, key=lambda each: (-held[each.traits.uid], each.started_at or 0.0))
    own = (each for each in ripe if each.traits.uid == first.traits.uid)
    return max(own, key=lambda each: each.entry)
