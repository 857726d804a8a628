"""Checks of ladders of models: which would be served, and why."""

from collections.abc import Iterator, Sequence
from functools import cached_property, partial

from inferd.config.kinds.registry import KindRegistry
from inferd.config.settings import BackendSettings, ConfigError, LimitSettings
from inferd.doctor.check import Check, Finding, failed, ok
from inferd.engine.ladder import ChosenModels, choose_models
from inferd.memory.plan import MemoryBudget

_HINT = "free memory, or add a smaller model to the end of the ladder"


class Ladders:
    """The ladders of a configuration, and the models that are chosen from them now.

    Workers are asked when the first check or ``backends`` needs the choice.

    Args:
        backends: as configured.
        budget: the memory to share.
        limits: with the timeout of workers.
        kinds: the kinds of backends.
    """

    def __init__(
        self,
        backends: Sequence[BackendSettings],
        budget: MemoryBudget,
        limits: LimitSettings,
        kinds: KindRegistry,
    ) -> None:
        self._configured = backends
        self._budget = budget
        self._limits = limits
        self._kinds = kinds
        self._names = [each.name for each in backends if kinds.of(each).rungs(each)]

    def checks(self) -> Iterator[Check]:
        """Yield a check for each backend with a ladder."""
        for name in self._names:
            yield Check(f"ladder[{name}]", partial(self._check, name))

    @property
    def backends(self) -> tuple[BackendSettings, ...]:
        """The backends with the chosen models; without one, those with ladders are left out."""
        chosen = self._chosen
        if isinstance(chosen, ChosenModels):
            return chosen.backends
        return tuple(each for each in self._configured if each.name not in self._names)

    def _check(self, name: str) -> Finding:
        """Check that a model of a ladder fits, and tell which."""
        chosen = self._chosen
        if isinstance(chosen, ConfigError):
            return failed(str(chosen), _HINT)
        return ok(
            f"{chosen.choices[name]}; a running daemon keeps its choice until this table "
            "changes and it reloads (inferd status)"
        )

    @cached_property
    def _chosen(self) -> ChosenModels | ConfigError:
        try:
            return choose_models(
                self._configured, self._budget, self._limits, self._kinds
            )
        except ConfigError as error:
            return error
