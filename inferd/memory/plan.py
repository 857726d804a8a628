"""Memory plan: predicted needs of the models, and the slots and contexts that fit.

All numbers are bytes unless stated otherwise. Workers predict their needs before they load;
the plan fixes the number of slots and the length of their contexts.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from inferd.limits.engine import MIN_FITTED_CONTEXT_TOKENS
from inferd.memory.linear import LinearSize, Sample, Size, upper_bound

__all__ = [
    "CONTEXT_BLOCK_TOKENS",
    "MIB",
    "InsufficientMemoryError",
    "LinearSize",
    "MemoryBudget",
    "MemoryDemand",
    "MemoryNeed",
    "MemoryPlan",
    "MemoryShare",
    "Sample",
    "budget_beside",
    "mib",
    "plan_memory",
    "upper_bound",
]

MIB = 1024 * 1024
CONTEXT_BLOCK_TOKENS = 256
"""llama.cpp rounds a context up to a multiple of this."""


class InsufficientMemoryError(Exception):
    """There is not enough memory; the text is one line, with the numbers."""


class MemoryNeed(Struct, frozen=True, kw_only=True):
    """The memory that a backend takes."""

    n_slots: int
    n_ctx: int
    """Tokens of one slot."""
    weights: int
    cache: int
    """The KV cache, or the recurrent states instead of it."""
    compute: int
    """Compute buffers for a batch, and its outputs."""
    own: int
    """The worker process itself, with its vocabularies."""
    pause: int = 0
    """What it may keep of paused jobs, at most."""
    store: int = 0
    """What it may keep of prompt prefixes, at most."""

    @property
    def total(self) -> int:
        """The sum of all parts."""
        kept = self.pause + self.store
        return self.weights + self.cache + self.compute + self.own + kept

    def __str__(self) -> str:
        """Describe the need in MiB, without the backend's name."""
        slots = "slot" if self.n_slots == 1 else "slots"
        parts = [
            f"{mib(self.weights)} for weights",
            f"{mib(self.cache)} for {self.n_slots} {slots} of {self.n_ctx} tokens",
            f"{mib(self.compute)} to compute",
            f"{mib(self.own)} for the worker",
        ]
        if self.pause:
            parts.append(f"{mib(self.pause)} for paused jobs")
        if self.store:
            parts.append(f"{mib(self.store)} to keep prefixes")
        return f"{mib(self.total)} ({', '.join(parts)})"


class MemoryDemand(Struct, frozen=True, kw_only=True, tag=True):
    """A worker's predicted need, sent before it loads; answered by a ``MemoryShare``."""

    n_ctx: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    """Tokens of one request, as configured or by default."""
    is_set: bool
    """Whether ``n_ctx`` was configured, and so must not shrink."""
    has_slots: bool
    """Whether each slot has a context of its own; encoders have one for all."""
    weights: Size
    """Weights, including those mapped from their file: if they were not resident, each
    token would wait for the disk."""
    own: Size
    cache: LinearSize = LinearSize()
    """By the tokens of all slots together."""
    compute: LinearSize = LinearSize()
    """By the tokens of one slot, as a sequence attends to its own tokens alone."""
    pause: Size = 0
    """What it would keep of paused jobs, at most; granted from what no backend needs."""
    store: Size = 0
    """What it would keep of prompt prefixes, at most; granted from what is left then."""
    accelerator: Size = 0
    """Memory of accelerators, as requested; counts in no budget."""

    def need(self, n_slots: int, n_ctx: int) -> MemoryNeed:
        """Return the need with a number of slots, and of tokens in each."""
        slots = n_slots if self.has_slots else 1
        n_tokens = -(-n_ctx // CONTEXT_BLOCK_TOKENS) * CONTEXT_BLOCK_TOKENS
        return MemoryNeed(
            n_slots=slots,
            n_ctx=n_ctx,
            weights=self.weights,
            cache=self.cache.at(slots, slots * n_tokens),
            compute=self.compute.at(slots, n_tokens),
            own=self.own,
        )

    def capped(self, cap: int) -> int:
        """Return the tokens of one slot if unconfigured contexts are at most ``cap``."""
        return self.n_ctx if self.is_set else min(self.n_ctx, cap)


class MemoryShare(Struct, frozen=True, kw_only=True, tag=True):
    """The share of memory that is granted to a worker."""

    n_slots: int
    n_ctx: int
    pause: int = 0
    """Bytes that it may keep of paused jobs."""
    store: int = 0
    """Bytes that it may keep of prompt prefixes."""


class MemoryPlan(Struct, frozen=True, kw_only=True):
    """The shares of all backends."""

    n_slots: int
    """Requests that may run at once."""
    needs: dict[str, MemoryNeed]
    """By backend name."""
    budget: int
    has_shrunk: bool
    """Whether any share is less than the demand."""
    on_demand: frozenset[str] = frozenset()
    """Backends that are loaded on demand, and do not all fit together."""
    too_large: dict[str, MemoryNeed] = {}
    """The least that others of them need, which do not fit even alone."""

    @property
    def total(self) -> int:
        """The need of all backends; of those that take turns, of the largest."""
        alone = [self.needs[name].total for name in self.on_demand & self.needs.keys()]
        kept = (
            need.total
            for name, need in self.needs.items()
            if name not in self.on_demand
        )
        return sum(kept) + max(alone, default=0)

    def need(self, name: str) -> MemoryNeed:
        """Return the need of a backend, also of one that is too large."""
        return self.needs.get(name) or self.too_large[name]

    def share(self, name: str) -> MemoryShare:
        """Return the share of a backend."""
        need = self.need(name)
        return MemoryShare(
            n_slots=self.n_slots, n_ctx=need.n_ctx, pause=need.pause, store=need.store
        )


class MemoryBudget(Struct, frozen=True, kw_only=True):
    """The memory to share, and the number of slots asked for."""

    n_bytes: int
    n_slots: int
    """Requests that are to run at once."""
    slots_are_set: bool
    """Whether ``n_slots`` was configured, and so must not shrink."""

    @property
    def fewest_slots(self) -> int:
        """The fewest slots that are acceptable."""
        return self.n_slots if self.slots_are_set else 1


def budget_beside(
    budget: MemoryBudget, plan: MemoryPlan | None, kept: Iterable[int]
) -> MemoryBudget:
    """Return what is left for a backend that no plan has foreseen; slots stay as planned.

    Args:
        budget: for all backends.
        plan: of those that were foreseen, if there are any.
        kept: the bytes of each backend that stays loaded beside it.
    """
    return MemoryBudget(
        n_bytes=max(0, budget.n_bytes - sum(kept)),
        n_slots=budget.n_slots if plan is None else plan.n_slots,
        slots_are_set=True,
    )


def plan_memory(
    demands: Mapping[str, MemoryDemand],
    budget: MemoryBudget,
    on_demand: Collection[str] = (),
) -> MemoryPlan:
    """Fit all backends in the budget: first with fewer slots, then with shorter contexts.

    Configured values stay. Other contexts shrink to the same length, none below
    ``MIN_FITTED_CONTEXT_TOKENS``. The rest goes to states of paused jobs, at most as much
    as the contexts take, then to kept prefixes; both in the order of the backends.

    Backends that are loaded on demand are planned like the others if nothing has to shrink
    for that. Otherwise each of them has to fit beside the others alone. One that does not
    is planned with the least that it needs, and can be loaded once there is more memory.

    Raises:
        InsufficientMemoryError: no plan fits.
    """
    plan = _plan(demands, budget, budget.n_slots, _longest(demands))
    if not on_demand or plan.total <= budget.n_bytes:
        return _with_caches(_fit_or_raise(demands, budget), demands)
    taking_turns = frozenset(on_demand)
    kept = {name: each for name, each in demands.items() if name not in taking_turns}
    fitting = {
        name: demand
        for name, demand in demands.items()
        if name in kept or _fit({**kept, name: demand}, budget) is not None
    }
    plan = _fit_or_raise(fitting, budget, taking_turns)
    too_large = {
        name: demand.need(plan.n_slots, demand.capped(MIN_FITTED_CONTEXT_TOKENS))
        for name, demand in demands.items()
        if name not in fitting
    }
    return replace(_with_caches(plan, demands), too_large=too_large)


def _with_caches(plan: MemoryPlan, demands: Mapping[str, MemoryDemand]) -> MemoryPlan:
    """Grant what is left of the budget to paused jobs, then to kept prefixes."""
    needs = dict(plan.needs)
    left = _grant(
        needs, demands, needs.keys() - plan.on_demand, plan.budget - plan.total
    )
    largest = max(
        (needs[name].total for name in plan.on_demand & needs.keys()), default=0
    )
    for name in plan.on_demand & needs.keys():  # one at a time is loaded
        _grant(needs, demands, {name}, left + largest - needs[name].total)
    return replace(plan, needs=needs)


def _grant(
    needs: dict[str, MemoryNeed],
    demands: Mapping[str, MemoryDemand],
    names: Collection[str],
    left: int,
) -> int:
    """Grant some backends bytes for their caches; return what is left."""
    granted = {name: need for name, need in needs.items() if name in names}
    for name, need in granted.items():
        pause = min(demands[name].pause, need.cache + need.compute, left)
        left -= pause
        needs[name] = replace(need, pause=pause)
    for name in granted:
        store = min(demands[name].store, left)
        left -= store
        needs[name] = replace(needs[name], store=store)
    return left


def _longest(demands: Mapping[str, MemoryDemand]) -> int:
    return max((demand.n_ctx for demand in demands.values()), default=0)


def _fit_or_raise(
    demands: Mapping[str, MemoryDemand],
    budget: MemoryBudget,
    on_demand: frozenset[str] = frozenset(),
) -> MemoryPlan:
    plan = _fit(demands, budget, on_demand)
    if plan is None:
        raise InsufficientMemoryError(_shortage(demands, budget))
    return plan


def _fit(
    demands: Mapping[str, MemoryDemand],
    budget: MemoryBudget,
    on_demand: frozenset[str] = frozenset(),
) -> MemoryPlan | None:
    longest = _longest(demands)
    for n_slots in range(budget.n_slots, budget.fewest_slots - 1, -1):
        plan = _plan(demands, budget, n_slots, longest, on_demand)
        if plan.total <= budget.n_bytes:
            return plan
    caps = range(MIN_FITTED_CONTEXT_TOKENS, longest, CONTEXT_BLOCK_TOKENS)

    def plan_within(cap: int) -> MemoryPlan:
        return _plan(demands, budget, budget.fewest_slots, cap, on_demand)

    n_fitting = bisect_right(
        caps, budget.n_bytes, key=lambda cap: plan_within(cap).total
    )
    return plan_within(caps[n_fitting - 1]) if n_fitting else None


def _plan(
    demands: Mapping[str, MemoryDemand],
    budget: MemoryBudget,
    n_slots: int,
    cap: int,
    on_demand: frozenset[str] = frozenset(),
) -> MemoryPlan:
    needs = {
        name: demand.need(n_slots, demand.capped(cap))
        for name, demand in demands.items()
    }
    return MemoryPlan(
        n_slots=n_slots,
        needs=needs,
        budget=budget.n_bytes,
        has_shrunk=n_slots < budget.n_slots
        or any(needs[name].n_ctx < demand.n_ctx for name, demand in demands.items()),
        on_demand=on_demand,
    )


def _shortage(demands: Mapping[str, MemoryDemand], budget: MemoryBudget) -> str:
    """Describe the minimum need, the budget, and settings that would fit."""
    minimum = _plan(demands, budget, budget.fewest_slots, MIN_FITTED_CONTEXT_TOKENS)
    needs = "; ".join(f"{name} needs {need}" for name, need in minimum.needs.items())
    together = f"; together {mib(minimum.total)}" if len(demands) > 1 else ""
    return (
        f"not enough memory: {needs}{together}; the budget is "
        f"{budget.n_bytes // MIB} MiB; {_advice(demands, budget)}"
    )


def _advice(demands: Mapping[str, MemoryDemand], budget: MemoryBudget) -> str:
    """Describe the settings that would have to change for a plan to fit."""
    free = {name: replace(demand, is_set=False) for name, demand in demands.items()}
    plan = _fit(free, replace(budget, slots_are_set=False))
    if plan is None:
        return "no fewer slots and no shorter context would fit"
    settings = [
        f"n_ctx = {need.n_ctx} for {name}"
        for name, need in plan.needs.items()
        if demands[name].is_set and need.n_ctx < demands[name].n_ctx
    ]
    if plan.n_slots < budget.fewest_slots:
        settings.insert(0, f"max_active = {plan.n_slots}")
    return f"{' with '.join(settings)} would fit"


def mib(n_bytes: int) -> str:
    """Format bytes in MiB, rounded up."""
    return f"{-(-n_bytes // MIB)} MiB"
