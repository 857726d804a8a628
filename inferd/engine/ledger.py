"""Who gets how much of the machine's memory."""

from collections.abc import Awaitable, Callable, Iterable, Iterator

import trio

from inferd.config import BackendSettings, MockSettings
from inferd.fit import Budget, Demand, Plan, Share, fit

Allot = Callable[[Demand], Awaitable[Share]]
"""Find what a worker gets for its demand; raises ``UnfitError``."""

Figure = tuple[str, str, Callable[[], float]]
"""A number to watch: its name, its meaning, and how it is read."""


class Ledger:
    """Hears what every backend demands, and decides once for all of them.

    A worker that takes another's place gets what the first one got: what clients were
    told holds as long as the daemon runs.

    Args:
        backends: all that are configured; scripted ones demand nothing.
        budget: what there is.
        on_plan: told what was decided.
    """

    def __init__(
        self,
        backends: Iterable[BackendSettings],
        budget: Budget,
        on_plan: Callable[[Plan], None] = lambda _: None,
    ) -> None:
        self._awaited = {
            each.name for each in backends if not isinstance(each, MockSettings)
        }
        self._budget = budget
        self._on_plan = on_plan
        self._demands: dict[str, Demand] = {}
        self._plan: Plan | None = None
        self._decided = trio.Event()

    async def allot(self, name: str, demand: Demand) -> Share:
        """Wait until all have demanded; tell what this one gets.

        Raises:
            UnfitError: there is not enough for all; only the last to demand is told.
        """
        while self._plan is None:
            self._demands[name] = demand
            if self._awaited <= self._demands.keys():
                self._decide()
            else:
                await self._decided.wait()
        return self._plan.share(name)

    def _decide(self) -> None:
        plan = fit(self._demands, self._budget)
        self._plan = plan
        self._on_plan(plan)
        self._decided.set()

    def figures(self) -> Iterator[Figure]:
        """Give the numbers that a monitoring system may want."""
        yield (
            "memory_budget_bytes",
            "What the models may take of the machine's memory.",
            lambda: self._budget.n_bytes,
        )
        yield (
            "memory_needed_bytes",
            "What they were predicted to take, once it is known.",
            lambda: self._plan.total if self._plan else 0,
        )
