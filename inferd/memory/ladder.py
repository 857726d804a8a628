"""The choice among models of a ladder, by the memory that they are predicted to need.

It follows from the demands and the budget alone.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from inferd.limits.engine import MIN_FITTED_CONTEXT_TOKENS
from inferd.memory.plan import (
    InsufficientMemoryError,
    MemoryBudget,
    MemoryDemand,
    MemoryPlan,
    mib,
    plan_memory,
)


class Rung(NamedTuple):
    """A model of a ladder."""

    model: str
    """As it is configured."""
    demand: MemoryDemand


class RungChoice(NamedTuple):
    """The model that was chosen from a ladder."""

    model: str
    place: int
    """In the ladder, from 0 on."""
    n_rungs: int
    reason: str
    """One line, with the numbers."""

    def __str__(self) -> str:
        """Describe the choice in one line."""
        place = f"{self.place + 1} of {self.n_rungs} in its ladder"
        return f"{self.model}, {place}: {self.reason}"


def choose_rungs(
    ladders: Mapping[str, Sequence[Rung]],
    others: Mapping[str, MemoryDemand],
    budget: MemoryBudget,
) -> dict[str, RungChoice]:
    """Choose a model for each backend with a ladder: the first for which a plan fits.

    They choose in their order; one that has not chosen yet counts with the last model of
    its ladder.

    Args:
        ladders: models by the name of the backend, the largest first; none is empty.
        others: demands of the other backends.
        budget: the memory to share.

    Raises:
        InsufficientMemoryError: a ladder has no model that fits.
    """
    demands = {**others, **{name: rungs[-1].demand for name, rungs in ladders.items()}}
    choices: dict[str, RungChoice] = {}
    for name, rungs in ladders.items():
        choices[name] = _choose(name, rungs, demands, budget)
        demands[name] = rungs[choices[name].place].demand
    return choices


def _choose(
    name: str,
    rungs: Sequence[Rung],
    demands: Mapping[str, MemoryDemand],
    budget: MemoryBudget,
) -> RungChoice:
    refusal = InsufficientMemoryError(f"the ladder of {name} is empty")
    larger: list[str] = []
    for place, (model, demand) in enumerate(rungs):
        try:
            plan = plan_memory({**demands, name: demand}, budget)
        except InsufficientMemoryError as error:
            refusal = InsufficientMemoryError(
                f"backend {name}: no model of its ladder fits; {model}: {error}"
            )
            larger.append(f"{model} needs {mib(_least_bytes(demand, budget))} at least")
        else:
            fitting = _fitting(plan, name)
            return RungChoice(model, place, len(rungs), "; ".join([fitting, *larger]))
    raise refusal


def _fitting(plan: MemoryPlan, name: str) -> str:
    """Describe a plan, without the caches that take what is left."""
    needs = {
        backend: need.total - need.pause - need.store
        for backend, need in plan.needs.items()
    }
    need, own = plan.needs[name], needs.pop(name)
    slots = "slot" if need.n_slots == 1 else "slots"
    others = f", the other backends {mib(sum(needs.values()))}" if needs else ""
    return (
        f"it needs {mib(own)} with {need.n_slots} {slots} of {need.n_ctx} tokens{others}; "
        f"the budget is {mib(plan.budget)}"
    )


def _least_bytes(demand: MemoryDemand, budget: MemoryBudget) -> int:
    """Return what a model needs with the fewest slots and the shortest context."""
    n_ctx = demand.capped(MIN_FITTED_CONTEXT_TOKENS)
    return demand.need(budget.fewest_slots, n_ctx).total
