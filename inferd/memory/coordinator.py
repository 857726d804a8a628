"""The coordinator that shares the machine's memory among backends."""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Final

import trio
from msgspec.structs import replace

from inferd.backend.gauge import GaugeSpec
from inferd.memory.plan import (
    InsufficientMemoryError,
    MemoryBudget,
    MemoryDemand,
    MemoryNeed,
    MemoryPlan,
    MemoryShare,
    budget_beside,
    mib,
    plan_memory,
)

RequestShare = Callable[[MemoryDemand], Awaitable[MemoryShare]]
"""Request a worker's share for its demand; raises ``InsufficientMemoryError``."""


NO_PART: Final = "its kind has no part in the memory plan"
"""Why a worker that demands memory unforeseen gets none."""


def _has_room(_name: str, _n_bytes: int) -> bool:
    return True


class MemoryCoordinator:
    """Coordinator that collects the demands of all backends, then plans for all at once.

    A worker that replaces another gets the share of the first one: the limits that clients
    were sent hold as long as the table of the backend does. If its demand has changed, as
    with a file that was replaced, it gets as much of that share as there is room for.

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
        self.reserve: Callable[[str, int], bool] = _has_room
        """Changes how much memory a backend takes; false if there is not so much. The loader
        of models sets this."""
        self._awaited = frozenset(awaited)
        self._on_demand = {*on_demand}
        self._budget = budget
        self._on_plan = on_plan
        self._late: dict[str, tuple[str, frozenset[str]]] = {}
        self._demands: dict[str, MemoryDemand] = {}
        self._needs: dict[str, MemoryNeed] = {}
        self._plan: MemoryPlan | None = None
        self._decided = trio.Event()

    async def request_share(self, name: str, demand: MemoryDemand) -> MemoryShare:
        """Wait until all backends have sent their demand; return the share of one.

        Raises:
            InsufficientMemoryError: there is not enough for all; raised to the backend
                whose demand came last. Or the backend is none of those with a part in
                the plan, or demands more than before and there is no room for that.
        """
        if name in self._needs:
            self._adapt(name, demand)
        elif name in self._late:
            self._plan_late(name, demand)
        elif name not in self._awaited:
            raise InsufficientMemoryError(NO_PART)
        while name not in self._needs:
            self._demands[name] = demand
            if self._awaited <= self._demands.keys():
                self._decide()
            else:
                await self._decided.wait()
        need = self._needs[name]
        return MemoryShare(
            n_slots=self._n_slots, n_ctx=need.n_ctx, pause=need.pause, store=need.store
        )

    def expect(
        self,
        name: str,
        beside: Iterable[str],
        *,
        shown: str = "",
        is_on_demand: bool = False,
    ) -> None:
        """Await one more demand, of a backend that the plan did not foresee.

        Args:
            name: by which its demand and its share are known.
            beside: names of those that stay in memory beside it.
            shown: its name in messages; by default the same.
            is_on_demand: whether it is loaded on demand.
        """
        self._late[name] = (shown or name, frozenset(beside))
        if is_on_demand:
            self._on_demand.add(name)

    def forget(self, name: str) -> None:
        """Forget a backend that is gone for good."""
        self._late.pop(name, None)
        self._on_demand.discard(name)
        self._demands.pop(name, None)
        self._needs.pop(name, None)

    def budget_beside(self, names: Iterable[str]) -> MemoryBudget:
        """Return what some backends leave of the budget; slots stay as they were planned."""
        return budget_beside(self._budget, self._plan, map(self.bytes_of, names))

    def _plan_late(self, name: str, demand: MemoryDemand) -> None:
        """Plan what the others leave; the shares and slots that there are stay."""
        shown, beside = self._late[name]
        plan = plan_memory({shown: demand}, self.budget_beside(beside))
        self._demands[name], self._needs[name] = demand, plan.need(shown)

    def _adapt(self, name: str, demand: MemoryDemand) -> None:
        """Take over a demand that has changed, within the slots and the context as planned.

        How much a worker itself takes is measured, and differs a little each time.
        """
        before, planned = self._demands.get(name, demand), self._needs[name]
        if demand == replace(before, own=demand.own):
            return
        need = demand.need(self._n_slots, min(demand.n_ctx, planned.n_ctx))
        need = _with_caches(need, demand, planned)
        if not self.reserve(name, need.total):
            raise InsufficientMemoryError(
                f"it needs {need}, and {mib(planned.total)} were planned: its file has "
                "changed, or its accelerator has less memory free; try inferd reload"
            )
        self._demands[name], self._needs[name] = demand, need

    def bytes_of(self, name: str) -> int:
        """Return the planned bytes of a backend; 0 if it has no part in the plan."""
        need = self._needs.get(name)
        return 0 if need is None else need.total

    @property
    def budget_bytes(self) -> int:
        """The memory to share."""
        return self._budget.n_bytes

    @property
    def _n_slots(self) -> int:
        return self._plan.n_slots if self._plan else self._budget.n_slots

    def _needed_bytes(self) -> int:
        """Sum up what all take; of those on demand, if not all fit, the largest counts."""
        needed = sum(need.total for need in self._needs.values())
        if needed <= self._budget.n_bytes:
            return needed
        taking_turns = [self.bytes_of(name) for name in self._on_demand]
        return needed - sum(taking_turns) + max(taking_turns, default=0)

    def _decide(self) -> None:
        plan = plan_memory(self._demands, self._budget, self._on_demand)
        self._plan = plan
        self._needs |= {name: plan.need(name) for name in self._demands}
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
            self._needed_bytes,
        )


def _with_caches(
    need: MemoryNeed, demand: MemoryDemand, planned: MemoryNeed
) -> MemoryNeed:
    """Grant what is left of the planned bytes to the caches, no more than was planned."""
    left = max(0, planned.total - need.total)
    pause = min(demand.pause, planned.pause, need.cache + need.compute, left)
    store = min(demand.store, planned.store, left - pause)
    return replace(need, pause=pause, store=store)
