"""The coordinator that shares the machine's memory among backends."""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Final

import trio

from inferd.backend.gauge import GaugeSpec
from inferd.memory.plan import (
    InsufficientMemoryError,
    MemoryBudget,
    MemoryDemand,
    MemoryPlan,
    MemoryShare,
    plan_memory,
)

RequestShare = Callable[[MemoryDemand], Awaitable[MemoryShare]]
"""Request a worker's share for its demand; raises ``InsufficientMemoryError``."""


NO_PART: Final = "its kind has no part in the memory plan"
"""Why a worker that demands memory unforeseen gets none."""


class MemoryCoordinator:
    """Coordinator that collects the demands of all backends, then plans for all at once.

    A worker that replaces another gets the share of the first one: the limits that clients
    were sent hold as long as the daemon runs.

    Args:
        awaited: names of the backends that demand memory; the plan waits for them all.
        budget: the memory to share.
        on_demand: names of those that are loaded on demand.
        on_plan: called with the plan once it is made.
    """

    def __init__(
        self,
        awaited: Iterable[str],
        budget: MemoryBudget,
        on_plan: Callable[[MemoryPlan], None] = lambda _: None,
        *,
        on_demand: Iterable[str] = (),
    ) -> None:
        self._awaited = frozenset(awaited)
        self._on_demand = frozenset(on_demand)
        self._budget = budget
        self._on_plan = on_plan
        self._late: dict[str, frozenset[str]] = {}
        self._late_plans: dict[str, MemoryPlan] = {}
        self._demands: dict[str, MemoryDemand] = {}
        self._plan: MemoryPlan | None = None
        self._decided = trio.Event()

    async def request_share(self, name: str, demand: MemoryDemand) -> MemoryShare:
        """Wait until all backends have sent their demand; return the share of one.

        Raises:
            InsufficientMemoryError: there is not enough for all; raised to the backend
                whose demand came last. Or the backend is none of those with a part in
                the plan.
        """
        if name in self._late:
            return self._request_late(name, demand)
        if name not in self._awaited:
            raise InsufficientMemoryError(NO_PART)
        while self._plan is None:
            self._demands[name] = demand
            if self._awaited <= self._demands.keys():
                self._decide()
            else:
                await self._decided.wait()
        return self._plan.share(name)

    def expect(self, name: str, beside: Iterable[str]) -> None:
        """Await one more demand, of a backend that the plan did not foresee.

        Args:
            name: of the backend.
            beside: names of those that stay in memory beside it.
        """
        self._late[name] = frozenset(beside)

    def forget(self, name: str) -> None:
        """Forget a backend that ``expect`` has named."""
        self._late.pop(name, None)
        self._late_plans.pop(name, None)

    def _request_late(self, name: str, demand: MemoryDemand) -> MemoryShare:
        """Plan what the others leave; the shares and slots that there are stay."""
        if name not in self._late_plans:
            left = self._budget.n_bytes - sum(map(self.bytes_of, self._late[name]))
            n_slots = self._plan.n_slots if self._plan else self._budget.n_slots
            budget = MemoryBudget(
                n_bytes=max(0, left), n_slots=n_slots, slots_are_set=True
            )
            self._late_plans[name] = plan_memory({name: demand}, budget)
        return self._late_plans[name].share(name)

    def bytes_of(self, name: str) -> int:
        """Return the planned bytes of a backend; 0 if it has no part in the plan."""
        if name in self._late_plans:
            return self._late_plans[name].need(name).total
        if self._plan is None or name not in self._awaited:
            return 0
        return self._plan.need(name).total

    @property
    def budget_bytes(self) -> int:
        """The memory to share."""
        return self._budget.n_bytes

    def _decide(self) -> None:
        plan = plan_memory(self._demands, self._budget, self._on_demand)
        self._plan = plan
        self._on_plan(plan)
        self._decided.set()

    def gauges(self) -> Iterator[GaugeSpec]:
        """Yield gauges of the budget and of the plan."""
        yield (
            "memory_budget_bytes",
            "Memory that the models may take.",
            lambda: self._budget.n_bytes,
        )
        yield (
            "memory_needed_bytes",
            "Predicted memory of the models; 0 until it is known.",
            lambda: self._plan.total if self._plan else 0,
        )
