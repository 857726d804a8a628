"""What models need of the machine's memory, and what of it fits.

All numbers are bytes unless they say otherwise. Workers predict what they need before
they load; what is decided here is how many slots there are, and how long their contexts.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from inferd.limits import MIN_FITTED_CONTEXT_TOKENS

MIB = 1024 * 1024
BLOCK_TOKENS = 256
"""llama.cpp rounds a context up to a multiple of this."""


MOST_BYTES = 2**62
"""What no machine has."""


class UnfitError(Exception):
    """There is not enough memory; its text is one line, with the numbers."""


Size = Annotated[int, Meta(ge=0, le=MOST_BYTES)]
"""Bytes that a worker tells of: more than any machine has are a lie."""


class Line(Struct, frozen=True, kw_only=True):
    """Bytes that grow with the slots, and with tokens: of one slot, or of all together."""

    fixed: Annotated[int, Meta(ge=-MOST_BYTES, le=MOST_BYTES)] = 0
    per_slot: Size = 0
    per_token: Size = 0

    def at(self, n_slots: int, n_tokens: int) -> int:
        """Tell the bytes for so many slots, and tokens."""
        return self.fixed + self.per_slot * n_slots + self.per_token * n_tokens

    def __add__(self, other: "Line") -> "Line":
        return Line(
            fixed=self.fixed + other.fixed,
            per_slot=self.per_slot + other.per_slot,
            per_token=self.per_token + other.per_token,
        )


class Sample(Struct, frozen=True):
    """Bytes for so many slots, and tokens."""

    n_slots: int
    n_tokens: int
    n_bytes: int


def line_over(samples: Sequence[Sample]) -> Line:
    """Draw a line that no sample is above, and those of a true line are on.

    Between samples it is no lower than anything that grows faster and faster.
    """
    per_token = _slope(
        (b.n_tokens - a.n_tokens, b.n_bytes - a.n_bytes)
        for a, b in combinations(samples, 2)
        if a.n_slots == b.n_slots
    )
    per_slot = _slope(
        (b.n_slots - a.n_slots, b.n_bytes - a.n_bytes)
        for a, b in combinations(samples, 2)
        if a.n_tokens == b.n_tokens
    )
    slopes = Line(per_slot=per_slot, per_token=per_token)
    fixed = max(
        sample.n_bytes - slopes.at(sample.n_slots, sample.n_tokens)
        for sample in samples
    )
    return Line(fixed=fixed, per_slot=per_slot, per_token=per_token)


def _slope(rises: Iterable[tuple[int, int]]) -> int:
    """Give the slope between the two that are farthest apart, rounded up; never down."""
    run, rise = max(((abs(x), y if x > 0 else -y) for x, y in rises), default=(0, 0))
    return max(0, -(-rise // run)) if run else 0


class Need(Struct, frozen=True, kw_only=True):
    """What a backend takes."""

    n_slots: int
    n_ctx: int
    """Tokens of one slot."""
    weights: int
    cache: int
    """The KV cache, or the states that take its place."""
    compute: int
    """What a batch is computed in, and its results."""
    own: int
    """The worker itself, with its vocabularies."""
    pause: int = 0
    """What it may keep of paused jobs."""
    store: int = 0
    """What it may keep beside."""

    @property
    def total(self) -> int:
        """All of it."""
        kept = self.pause + self.store
        return self.weights + self.cache + self.compute + self.own + kept

    def __str__(self) -> str:
        """Say it in MiB, without a name."""
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


class Demand(Struct, frozen=True, kw_only=True, tag=True):
    """What a worker predicts before it loads; answered by a ``Share``."""

    n_ctx: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    """Tokens of one request, as configured or by default."""
    is_set: bool
    """Whether that was configured: then nothing else will do."""
    has_slots: bool
    """Whether each slot has a context of its own; what encodes has one for all."""
    weights: Size
    """Weights that are mapped from their file count like others: without them in memory
    each token would wait for the disk."""
    own: Size
    cache: Line = Line()
    """Over the tokens of all slots together."""
    compute: Line = Line()
    """Over the tokens of one slot: what is computed of one sequence sees no other's."""
    pause: Size = 0
    """What it would keep of paused jobs, at most: of what nobody else needs."""
    store: Size = 0
    """What it would keep beside, at most: of what is left then."""
    accelerator: Size = 0
    """On accelerators, as it was asked for; in no budget."""

    def need(self, n_slots: int, n_ctx: int) -> Need:
        """Tell what it takes with so many slots, of so many tokens each."""
        slots = n_slots if self.has_slots else 1
        n_tokens = -(-n_ctx // BLOCK_TOKENS) * BLOCK_TOKENS
        return Need(
            n_slots=slots,
            n_ctx=n_ctx,
            weights=self.weights,
            cache=self.cache.at(slots, slots * n_tokens),
            compute=self.compute.at(slots, n_tokens),
            own=self.own,
        )

    def capped(self, cap: int) -> int:
        """Give the tokens of one slot if those that nobody has set are at most so many."""
        return self.n_ctx if self.is_set else min(self.n_ctx, cap)


class Share(Struct, frozen=True, kw_only=True, tag=True):
    """What a worker gets for its demand."""

    n_slots: int
    n_ctx: int
    pause: int = 0
    """Bytes that it may keep of paused jobs."""
    store: int = 0
    """Bytes that it may keep beside."""


class Plan(Struct, frozen=True, kw_only=True):
    """What all backends get."""

    n_slots: int
    """Requests that may run at once."""
    needs: dict[str, Need]
    """By the backends' names."""
    budget: int
    has_shrunk: bool
    """Whether something is less than was wanted."""

    @property
    def total(self) -> int:
        """What all of them take."""
        return sum(need.total for need in self.needs.values())

    def share(self, name: str) -> Share:
        """Tell what a backend gets."""
        need = self.needs[name]
        return Share(
            n_slots=self.n_slots, n_ctx=need.n_ctx, pause=need.pause, store=need.store
        )


class Budget(Struct, frozen=True, kw_only=True):
    """What there is, and what was asked for."""

    n_bytes: int
    n_slots: int
    """Requests that are to run at once."""
    slots_are_set: bool
    """Whether that was configured: then no other number will do."""

    @property
    def fewest_slots(self) -> int:
        """How few slots will do."""
        return self.n_slots if self.slots_are_set else 1


def fit(demands: Mapping[str, Demand], budget: Budget) -> Plan:
    """Fit all backends in the budget: first with fewer slots, then with less context.

    What was configured stays as it is. Contexts shrink to the same length, none below
    ``MIN_FITTED_CONTEXT_TOKENS``. What is left is for the states of paused jobs, no more
    than all contexts take, then to keep things; each by the first backends first.

    Raises:
        UnfitError: it cannot be done.
    """
    plan = _fitting(demands, budget)
    if plan is None:
        raise UnfitError(_refusal(demands, budget))
    left = budget.n_bytes - plan.total
    needs = dict(plan.needs)
    for name, need in needs.items():
        pause = min(demands[name].pause, need.cache + need.compute, left)
        left -= pause
        needs[name] = replace(need, pause=pause)
    for name, need in needs.items():
        store = min(demands[name].store, left)
        left -= store
        needs[name] = replace(need, store=store)
    return replace(plan, needs=needs)


def _fitting(demands: Mapping[str, Demand], budget: Budget) -> Plan | None:
    whole = max((each.n_ctx for each in demands.values()), default=0)
    for n_slots in range(budget.n_slots, budget.fewest_slots - 1, -1):
        plan = _plan(demands, budget, n_slots, whole)
        if plan.total <= budget.n_bytes:
            return plan
    caps = range(MIN_FITTED_CONTEXT_TOKENS, whole, BLOCK_TOKENS)

    def plan_within(cap: int) -> Plan:
        return _plan(demands, budget, budget.fewest_slots, cap)

    n_fitting = bisect_right(
        caps, budget.n_bytes, key=lambda cap: plan_within(cap).total
    )
    return plan_within(caps[n_fitting - 1]) if n_fitting else None


def _plan(
    demands: Mapping[str, Demand], budget: Budget, n_slots: int, cap: int
) -> Plan:
    needs = {
        name: demand.need(n_slots, demand.capped(cap))
        for name, demand in demands.items()
    }
    return Plan(
        n_slots=n_slots,
        needs=needs,
        budget=budget.n_bytes,
        has_shrunk=n_slots < budget.n_slots
        or any(needs[name].n_ctx < each.n_ctx for name, each in demands.items()),
    )


def _refusal(demands: Mapping[str, Demand], budget: Budget) -> str:
    """Say what is needed at the least, what there is, and what would fit."""
    least = _plan(demands, budget, budget.fewest_slots, MIN_FITTED_CONTEXT_TOKENS)
    needs = "; ".join(f"{name} needs {need}" for name, need in least.needs.items())
    together = f"; together {mib(least.total)}" if len(demands) > 1 else ""
    return (
        f"not enough memory: {needs}{together}; the budget is "
        f"{budget.n_bytes // MIB} MiB; {_advice(demands, budget)}"
    )


def _advice(demands: Mapping[str, Demand], budget: Budget) -> str:
    """Say which settings, if they were others, would make it fit."""
    free = {name: replace(each, is_set=False) for name, each in demands.items()}
    plan = _fitting(free, replace(budget, slots_are_set=False))
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
    """Write bytes in MiB, rounded up."""
    return f"{-(-n_bytes // MIB)} MiB"
