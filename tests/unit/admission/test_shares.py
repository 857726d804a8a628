"""Sums that are kept between decisions give what counting anew for each would give."""

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from hypothesis import given, settings, strategies as st

from inferd.admission.control import Admission, RequestTraits
from inferd.admission.shares import Shares
from inferd.backend.caller import Caller
from inferd.errors import QueueFullError
from tests.unit.admission import plain

NAMES = ["", "", "a", "b", "c"]
MAX_QUEUED, QUANTUM_S = 12, 2.0


def same(shares: Shares, callers: list[Caller], max_weight: int) -> None:
    expected = plain.PlainShares(callers, max_weight)
    assert len(shares) == len({*callers})
    assert shares.n_parts == expected.n_parts
    for caller in callers:
        assert shares.weight(caller.user) == expected.weight(caller.user)
        for n, limit in ((0, 1), (3, 10), (7, 1000)):
            assert shares.of_user(limit, caller.user) == expected.of_user(
                limit, caller.user
            )
            assert shares.of(limit, caller) == expected.of(limit, caller)
            assert shares.excess(n, limit, caller) == expected.excess(n, limit, caller)


class ComparedGate:
    """A gate whose decisions are compared, as requests come and go by chance."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.max_active = chance.randint(1, 4)
        self.weight, self.now, self.n_tickets = chance.randint(1, 3), 0.0, 0
        self.gate = Admission(
            max_active=self.max_active,
            max_queued=MAX_QUEUED,
            quantum_s=QUANTUM_S,
            gateway_weight=self.weight,
        )

    def go_on(self) -> None:
        does = (self.arrive, self.leave, self.pause, self.resume, self.set_weight)
        [do] = self.chance.choices(does, (10, 4, 6, 2, 1))
        do()
        self.now += self.chance.choice((0.0, 0.0, 0.5, QUANTUM_S))
        self.preempt()
        self.check_shares()

    def arrive(self) -> None:
        self.n_tickets += 1
        caller = Caller(self.chance.randrange(3), self.chance.choice(NAMES))
        traits = RequestTraits(caller, priority=self.chance.randrange(2), n_bytes=1)
        with suppress(QueueFullError):
            self.gate.arrive(self.n_tickets, traits, now=self.now)

    def leave(self) -> None:
        if self.gate._requests:
            ticket = self.chance.choice([*self.gate._requests])
            self.check_turn(lambda: self.gate.leave(ticket, now=self.now))

    def pause(self) -> None:
        running = self.gate._running.values()
        asked = [each.entry.ticket for each in running if each.is_preempting]
        if asked:
            self.gate.note_paused(self.chance.choice(asked), now=self.now)
        elif self.gate._running and not self.chance.randrange(4):
            ticket = self.chance.choice([*self.gate._running])
            self.gate.note_paused(ticket, now=self.now, waits=False)

    def resume(self) -> None:
        for ticket in self.gate._requests:
            if self.gate.is_idle(ticket):
                self.gate.resume(ticket, now=self.now)
                return

    def set_weight(self) -> None:
        self.weight = self.chance.randint(1, 4)
        self.gate.set_gateway_weight(self.weight)

    def preempt(self) -> None:
        expected = plain.next_preemption(
            self.gate._running,
            self.queues(),
            max_active=self.max_active,
            max_weight=self.weight,
            quantum_s=QUANTUM_S,
            now=self.now,
        )
        assert self.gate.next_preemption(now=self.now) == expected

    def check_shares(self) -> None:
        requests = self.gate._requests
        waiting = [each.traits.caller for queue in self.queues() for each in queue]
        permits = [each.traits.caller for each in self.gate._running.values()]
        new = [each.traits.caller for each in requests.values() if each.is_new]
        same(self.gate._queue.shares, [*waiting, *permits], self.weight)
        same(self.gate._backlog._shares, new, self.weight)

    def queues(self) -> plain.Queues:
        return [
            [self.gate._requests[entry.ticket] for entry in queue]
            for queue in self.gate._queue.by_caller()
        ]

    def check_turn(self, leave: Callable[[], int | None]) -> None:
        """Leave, and compare who is served then."""
        callers = [queue[0].traits.caller for queue in self.queues()]
        served = leave()
        if served is None:
            return
        permits = Counter(each.traits.caller for each in self.gate._running.values())
        caller = self.gate._running[served].traits.caller
        permits[caller] -= 1
        shares = plain.PlainShares([*callers, *+permits], self.weight)
        users = [each.user for each in callers]
        assert caller == min(
            callers, key=lambda each: plain.turn(each, permits, users, shares)
        )


@settings(max_examples=10)
@given(st.integers(0, 2**32))
def test_kept_sums_change_no_decision(seed):
    gate = ComparedGate(random.Random(seed))  # noqa: S311  # nobody's secret
    for _ in range(100):
        gate.go_on()
