"""The decisions of admission computed from all requests each time, to compare with."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from inferd.admission.preemption import AdmittedRequest, Preemption
from inferd.backend.caller import Caller

Queues = Sequence[Sequence[AdmittedRequest]]


class PlainShares:
    """What ``Shares`` says, of callers that never change."""

    def __init__(self, callers: Iterable[Caller], max_weight: int) -> None:
        self.n_principals = Counter(user for user, _ in {*callers})
        self.max_weight = max_weight
        self.n_parts = sum(map(self.weight, self.n_principals))

    def weight(self, user: int) -> int:
        return min(self.n_principals[user], self.max_weight)

    def of_user(self, limit: int, user: int) -> int:
        return limit * self.weight(user) // self.n_parts

    def of(self, limit: int, caller: Caller) -> int:
        n_principals = self.n_principals[caller.user]
        return limit * self.weight(caller.user) // (self.n_parts * n_principals)

    def excess(self, n: int, limit: int, caller: Caller) -> int:
        n_principals = self.n_principals[caller.user]
        return n * self.n_parts * n_principals - limit * self.weight(caller.user)


def turn(
    caller: Caller,
    permits: Counter[Caller],
    users: Sequence[int],
    shares: PlainShares,
) -> tuple[int, int, int]:
    """Sort callers by who is served next; equals in the order in which they are given.

    Args:
        caller: who waits.
        permits: of all callers.
        users: those who wait, in the order of their turns.
        shares: of the permits.
    """
    of_user = sum(n for each, n in permits.items() if each.user == caller.user)
    n_rounds = of_user // shares.weight(caller.user)
    return n_rounds, users.index(caller.user), permits[caller]


def next_preemption(  # noqa: PLR0913  # the state, and every limit
    running: Mapping[int, AdmittedRequest],
    queues: Queues,
    *,
    max_active: int,
    max_weight: int,
    quantum_s: float,
    now: float,
) -> Preemption:
    """Decide which request is paused next."""
    waiting = [queue[0].traits.caller for queue in queues]
    callers = [*waiting, *(each.traits.caller for each in running.values())]
    shares = PlainShares(callers, max_weight)
    holding = [each for each in running.values() if not each.is_preempting]
    preempting = {each.traits.caller for each in running.values() if each.is_preempting}
    held = Counter(each.traits.caller for each in holding)
    left = [[*queue] for queue in queues]
    users = [caller.user for caller in waiting]
    for _ in range(len(running) - len(holding)):
        present = [queue for queue in left if queue]
        if present:
            queue_of_first = min(
                present,
                key=lambda queue: turn(queue[0].traits.caller, held, users, shares),
            )
            held[queue_of_first.pop(0).traits.caller] += 1

    def excess(request: AdmittedRequest) -> int:
        caller = request.traits.caller
        return shares.excess(held[caller], max_active, caller)

    over = [each for each in holding if excess(each) > 0]
    under = [
        queue[0]
        for queue in left
        if queue and excess(queue[0]) < 0 and queue[0].traits.caller not in preempting
    ]
    if not over or not under:
        return Preemption()
    ends = {each.entry.ticket: (each.started_at or 0.0) + quantum_s for each in over}
    paused = [
        -math.inf if each.paused_at is None else each.paused_at + quantum_s
        for each in under
    ]
    at = max(min(paused), min(ends.values()))
    if at > now:
        return Preemption(at)
    ripe = [each for each in over if ends[each.entry.ticket] <= now]
    first = min(
        ripe, key=lambda each: (-held[each.traits.caller], each.started_at or 0)
    )
    own = [each for each in ripe if each.traits.caller == first.traits.caller]
    return Preemption(at, max(own, key=lambda each: each.entry).entry.ticket)
