"""Choose the models of backends whose configuration has a ladder of them."""

from collections.abc import Sequence
from typing import NamedTuple

from inferd.config.kinds.kind import InWorker, MemoryPolicy
from inferd.config.kinds.registry import KINDS, KindRegistry, S
from inferd.config.load import locate_model
from inferd.config.settings import BackendSettings, ConfigError, LimitSettings
from inferd.engine.demand import DemandUnknownError, predict_demand
from inferd.memory.ladder import Rung, RungChoice, choose_rungs
from inferd.memory.plan import InsufficientMemoryError, MemoryBudget, MemoryDemand


class ChosenModels(NamedTuple):
    """Backends, none of which has a ladder any more."""

    backends: tuple[BackendSettings, ...]
    choices: dict[str, RungChoice]
    """By the name of the backend, of those that had one."""


def choose_models(
    backends: Sequence[BackendSettings],
    budget: MemoryBudget,
    limits: LimitSettings,
    kinds: KindRegistry = KINDS,
) -> ChosenModels:
    """Choose the first model of each ladder that fits beside the other backends.

    A worker is asked for the demand of each model; this blocks, and takes about half a
    second for each. Nothing is asked if no backend has a ladder.

    Args:
        backends: as configured.
        budget: the memory to share.
        limits: with the timeout of workers.
        kinds: the kinds of backends.

    Raises:
        ConfigError: a model cannot be found or read, or a ladder has none that fits.
    """
    rungs = {each.name: [*kinds.of(each).rungs(each)] for each in backends}
    if not any(rungs.values()):
        return ChosenModels((*backends,), {})
    ask = _Asking(budget, limits, kinds)
    ladders = {
        name: [Rung(_model(rung), ask.demand(rung)) for rung in each]
        for name, each in rungs.items()
        if each
    }
    others = {
        each.name: ask.demand(each)
        for each in backends
        if not rungs[each.name] and kinds.of(each).memory(each) is MemoryPolicy.DEMANDED
    }
    try:
        choices = choose_rungs(ladders, others, budget)
    except InsufficientMemoryError as error:
        raise ConfigError(str(error)) from error
    chosen = (
        rungs[each.name][choices[each.name].place] if each.name in choices else each
        for each in backends
    )
    return ChosenModels((*chosen,), choices)


class _Asking:
    """Asks workers for demands.

    Args:
        budget: with the number of slots.
        limits: with the timeout.
        kinds: the kinds of backends.
    """

    def __init__(
        self, budget: MemoryBudget, limits: LimitSettings, kinds: KindRegistry
    ) -> None:
        self._budget = budget
        self._limits = limits
        self._kinds = kinds

    def demand(self, settings: S) -> MemoryDemand:
        """Ask a worker what a backend needs.

        Raises:
            ConfigError: its model cannot be found or read.
        """
        kind = self._kinds.of(settings)
        match kind.served_by:
            case InWorker(program=program):
                located = kind.doctor.without_hashes(
                    locate_model(settings, self._kinds)
                )
            case _:
                raise TypeError(f"{kind.name} has no worker, and so no ladder")
        try:
            return predict_demand(program, located, self._budget.n_slots, self._limits)
        except DemandUnknownError as error:
            raise ConfigError(f"backend {settings.name}: {error}") from error


def _model(settings: BackendSettings) -> str:
    """Return the model that a rung's settings name."""
    return str(getattr(settings, "model", settings.name))
