"""Checks of the memory that the configured backends would take; nothing is loaded."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec
import trio

from inferd.config import LimitSettings, LlamaCppSettings, WhisperCppSettings
from inferd.doctor.check import Finding, failed, ok, warning
from inferd.engine.conduct import SessionOverError
from inferd.engine.process import start_worker
from inferd.engine.session import Session
from inferd.engine.stepdown import StepDown
from inferd.fit import Budget, Demand, Need, Plan, Share, UnfitError, fit, mib
from inferd.ipc import Load

Weighty = LlamaCppSettings | WhisperCppSettings
"""Backends that take memory."""

_HINT = "free memory, or set [memory] budget; docs/configuration.md says what it counts"


@dataclass(frozen=True, slots=True)
class Forecast:
    """What all backends would take."""

    demands: dict[str, Demand] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    """Why nothing is known of some."""
    plan: Plan | None = None
    refusal: str = ""
    """Why there is no plan."""

    def share(self, name: str, demand: Demand) -> Share:
        """Tell what a backend may take for a decode by itself."""
        n_ctx = self.plan.needs[name].n_ctx if self.plan else demand.n_ctx
        return Share(n_slots=1, n_ctx=n_ctx)


def forecast(
    backends: Iterable[Weighty], budget: Budget, limits: LimitSettings
) -> Forecast:
    """Ask a worker for each backend what it would take, and fit them together."""
    demands: dict[str, Demand] = {}
    failures: dict[str, str] = {}
    for settings in backends:
        outcome = trio.run(_predict, settings, budget.n_slots, limits)
        if isinstance(outcome, Demand):
            demands[settings.name] = outcome
        else:
            failures[settings.name] = outcome
    try:
        return Forecast(demands, failures, fit(demands, budget))
    except UnfitError as error:
        return Forecast(demands, failures, refusal=str(error))


async def _predict(
    settings: Weighty, n_slots: int, limits: LimitSettings
) -> Demand | str:
    """Start a worker, hear what it demands, and end it; again where a variant crashes."""
    heard: list[Demand] = []

    async def hear(demand: Demand) -> Share:
        heard.append(demand)
        raise UnfitError

    step_down = StepDown()
    while True:
        load = Load(
            settings=_unpinned(settings),
            n_slots=n_slots,
            crashed=step_down.crashed,
        )
        async with start_worker() as process:
            session = Session(process)
            try:
                await session.load(
                    load, lambda _: None, hear, silence_s=limits.load_silence_s
                )
            except SessionOverError as error:
                if not step_down.died(error.reason, session.variant):
                    return str(error)
            except UnfitError:
                return heard[0]
            else:
                return "it loaded without a word about memory"


def check_memory(name: str, known: Forecast, *, daemon_runs: bool) -> Finding:
    """Does a backend fit, beside the others?

    Args:
        name: of the backend.
        known: what all of them take.
        daemon_runs: whether a daemon has its own memory already, so that less is left.
    """
    if name in known.failures:
        return failed(known.failures[name], "make setup")
    if known.plan is None:
        if daemon_runs:
            return warning(f"beside the daemon that runs: {known.refusal}")
        return failed(known.refusal, _HINT)
    need = known.plan.needs[name]
    detail = (
        f"needs {need}; all backends {mib(known.plan.total)}, "
        f"the budget is {known.plan.budget // 2**20} MiB"
    )
    say = warning if _has_shrunk(known, need, name) else ok
    found = say(f"{detail}; less than wanted, to fit" if say is warning else detail)
    return msgspec.structs.replace(found, figures=_figures(known.plan, need))


def _has_shrunk(known: Forecast, need: Need, name: str) -> bool:
    demand = known.demands[name]
    return need.n_ctx < demand.n_ctx or (
        known.plan is not None and known.plan.has_shrunk and demand.has_slots
    )


def _figures(plan: Plan, need: Need) -> dict[str, int]:
    return {
        **msgspec.structs.asdict(need),
        "total": need.total,
        "budget": plan.budget,
    }


def _unpinned(settings: Weighty) -> Weighty:
    """Leave hashes out: another check takes them."""
    if isinstance(settings, LlamaCppSettings):
        return msgspec.structs.replace(settings, sha256=None, mmproj_sha256=None)
    return msgspec.structs.replace(settings, sha256=None)
