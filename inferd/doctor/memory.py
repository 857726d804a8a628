"""Checks of the memory that the configured backends would need; loads no model."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import msgspec

from inferd.config.settings import BackendSettings, LimitSettings, is_on_demand
from inferd.doctor.check import Finding, failed, ok, warning
from inferd.doctor.machine import reinstall_hint
from inferd.engine.demand import DemandUnknownError, predict_demand
from inferd.memory.coordinator import NO_PART
from inferd.memory.plan import (
    InsufficientMemoryError,
    MemoryBudget,
    MemoryDemand,
    MemoryNeed,
    MemoryPlan,
    MemoryShare,
    mib,
    plan_memory,
)

_HINT = "free memory, or set [memory] budget; docs/configuration.md says what it counts"


@dataclass(frozen=True, slots=True)
class Forecast:
    """Predicted memory of all backends."""

    demands: dict[str, MemoryDemand] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    """Backend to the reason why its demand is unknown."""
    plan: MemoryPlan | None = None
    refusal: str = ""
    """Why there is no plan."""
    broken: frozenset[str] = frozenset()
    """Backends of ``failures`` where the content of a file is at fault."""

    def share(self, name: str, demand: MemoryDemand) -> MemoryShare:
        """Return the memory that a backend may use for a decode by itself.

        Raises:
            InsufficientMemoryError: it is none of those that demand memory.
        """
        if name not in self.demands:
            raise InsufficientMemoryError(NO_PART)
        n_ctx = self.plan.need(name).n_ctx if self.plan else demand.n_ctx
        return MemoryShare(n_slots=1, n_ctx=n_ctx)


def forecast(
    workers: Iterable[tuple[str, BackendSettings]],
    budget: MemoryBudget,
    limits: LimitSettings,
) -> Forecast:
    """Ask a worker for the demand of each backend, and plan them together.

    Args:
        workers: the program of each backend that demands memory, and its settings without
            hashes.
        budget: the memory to share.
        limits: with the timeout.
    """
    demands: dict[str, MemoryDemand] = {}
    failures: dict[str, str] = {}
    broken: set[str] = set()
    on_demand: set[str] = set()
    for program, settings in workers:
        try:
            demands[settings.name] = predict_demand(
                program, settings, budget.n_slots, limits
            )
            on_demand |= {settings.name} if is_on_demand(settings) else set()
        except DemandUnknownError as error:
            failures[settings.name] = str(error)
            broken |= {settings.name} if error.is_broken_file else set()
    known = Forecast(demands, failures, broken=frozenset(broken))
    try:
        return replace(known, plan=plan_memory(demands, budget, on_demand))
    except InsufficientMemoryError as error:
        return replace(known, refusal=str(error))


def check_memory(
    name: str, known: Forecast, broken_hint: str, *, daemon_runs: bool
) -> Finding:
    """Check that a backend fits into memory together with the others.

    Args:
        name: of the backend.
        known: the forecast for all backends.
        broken_hint: what to do if a file's content is at fault.
        daemon_runs: whether a running daemon takes memory already, so that less is free.
    """
    if name in known.failures:
        hint = broken_hint if name in known.broken else reinstall_hint()
        return failed(known.failures[name], hint)
    if known.plan is None:
        if daemon_runs:
            return warning(f"besides the running daemon: {known.refusal}")
        return failed(known.refusal, _HINT)
    if name in known.plan.too_large:
        return failed(f"needs {known.plan.too_large[name]}, more than is left", _HINT)
    need = known.plan.needs[name]
    detail = (
        f"needs {need}; all backends {mib(known.plan.total)}, "
        f"the budget is {mib(known.plan.budget)}"
    )
    if _has_shrunk(known, need, name):
        found = warning(f"{detail}; reduced to fit")
    else:
        found = ok(detail)
    return msgspec.structs.replace(found, figures=figures(known.plan, need))


def _has_shrunk(known: Forecast, need: MemoryNeed, name: str) -> bool:
    demand = known.demands[name]
    return need.n_ctx < demand.n_ctx or (
        known.plan is not None and known.plan.has_shrunk and demand.has_slots
    )


def figures(plan: MemoryPlan, need: MemoryNeed) -> dict[str, int]:
    """Return the numbers of a plan, for programs."""
    return {
        **msgspec.structs.asdict(need),
        "total": need.total,
        "budget": plan.budget,
    }
