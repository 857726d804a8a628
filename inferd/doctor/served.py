"""Checks of the models of the store that are served by name."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from msgspec.structs import replace

from inferd.config.kinds.kind import InWorker
from inferd.config.kinds.registry import KindRegistry
from inferd.config.served import StoreModel, StoreView, view_stores
from inferd.config.settings import Config, is_on_demand
from inferd.doctor.backend import broken_hint, store_command
from inferd.doctor.check import Check, Finding, failed, ok, warning
from inferd.doctor.memory import Forecast, figures
from inferd.engine.demand import DemandUnknownError, predict_demand
from inferd.limits.residency import DOCTOR_MAX_SERVED
from inferd.memory.plan import (
    InsufficientMemoryError,
    MemoryBudget,
    MemoryDemand,
    budget_beside,
    mib,
    plan_memory,
)
from inferd.paths import SYSTEM_MODELS

_HINT: Final = "free memory, or set [memory] budget, or a smaller [models] n_ctx"


class MemoryBeside(NamedTuple):
    """The memory of the backends that are configured."""

    known: Forecast
    budget: MemoryBudget

    def left(self, config: Config) -> MemoryBudget:
        """Return what is left beside those that stay loaded, as in the daemon."""
        plan = self.known.plan
        needs = {} if plan is None else plan.needs
        kept = {each.name for each in config.backend if not is_on_demand(each)}
        n_bytes = (need.total for name, need in needs.items() if name in kept)
        return budget_beside(self.budget, plan, n_bytes)


def served_checks(
    config: Config,
    stores: Sequence[Path],
    memory: Callable[[], MemoryBeside],
    kinds: KindRegistry,
) -> Iterator[Check]:
    """Yield a check for each model of the store that is served, or cannot be.

    Args:
        config: says which models are served.
        stores: their paths.
        memory: returns that of the configured backends.
        kinds: the kinds of backends.

    Bounds: workers are asked about ``DOCTOR_MAX_SERVED`` models.
    """
    if not config.models.serve:
        return
    system = " --system" if [*stores] == [SYSTEM_MODELS] else ""
    served = _Served(config, memory, kinds, f"inferd model list{system}")
    view = view_stores(stores, config.models, kinds=kinds)
    yield Check("served", partial(served.check_all, view))
    for name, refused in view.refused.items():
        if name:
            yield Check(f"served[{name}]", partial(served.fail, refused.reason))
    for name, model in [*view.served.items()][:DOCTOR_MAX_SERVED]:
        yield Check(f"served[{name}]", partial(served.check, name, model))


class _Served:
    def __init__(
        self,
        config: Config,
        memory: Callable[[], MemoryBeside],
        kinds: KindRegistry,
        list_command: str,
    ) -> None:
        self._config = config
        self._memory = memory
        self._kinds = kinds
        self._list_command = list_command

    def check_all(self, view: StoreView) -> Finding:
        """Say how many models are served by name."""
        n_served, n_tried = len(view.served), DOCTOR_MAX_SERVED
        detail = f"{n_served} models of the store are served by name"
        if n_served > n_tried:
            detail = f"{detail}; of these, the first {n_tried} are tried here"
        store = view.refused.get("")
        if reason := view.failure or (store and store.reason):
            return warning(f"{detail}; {reason}", self._list_command)
        return ok(detail)

    def fail(self, reason: str, hint: str = "") -> Finding:
        """Report a model that is not served: the daemon does not start without one it names."""
        is_named = not isinstance(self._config.models.serve, bool)
        return (failed if is_named else warning)(
            f"not served: {reason}", hint or self._list_command
        )

    def check(self, name: str, model: StoreModel) -> Finding:
        """Check that a model can be read, and fits beside the backends that stay loaded."""
        for backend in self._config.backend:
            if name in {backend.name, *backend.aliases}:
                return warning(f"not served: backend {backend.name} has this name")
        kind = self._kinds.of(model.settings)
        match kind.served_by:
            case InWorker(program=program):
                tried = kind.doctor.without_hashes(model.settings)
            case _:
                return self.fail(f"kind = {kind.name} has no worker")
        memory = self._memory()
        try:
            demand = predict_demand(
                program, tried, memory.budget.n_slots, self._config.limits
            )
        except DemandUnknownError as error:
            hint = self._failure_hint(name, model, is_broken=error.is_broken_file)
            return self.fail(str(error), hint)
        return self._check_fit(name, demand, memory.left(self._config))

    def _check_fit(
        self, name: str, demand: MemoryDemand, left: MemoryBudget
    ) -> Finding:
        """Plan a model as the daemon does when it is named."""
        try:
            plan = plan_memory({name: demand}, left)
        except InsufficientMemoryError as error:
            return self.fail(str(error), _HINT)
        need = plan.needs[name]
        reduced = "; reduced to fit" if need.n_ctx < demand.n_ctx else ""
        detail = f"needs {need}, and {mib(left.n_bytes)} are left{reduced}"
        return replace(ok(f"can be loaded: {detail}"), figures=figures(plan, need))

    def _failure_hint(self, name: str, model: StoreModel, *, is_broken: bool) -> str:
        """Return what to do about a model whose header could not be read."""
        files = self._kinds.of(model.settings).doctor.files(model.settings)
        if not is_broken:  # another attempt may read it
            return store_command("verify", name, files[0].path)
        return broken_hint(name, files, name)
