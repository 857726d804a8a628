"""Whether a model fits into the memory of this machine, as the daemon would plan it."""

from msgspec import Struct

from inferd.config.kinds.kind import InWorker, MemoryPolicy
from inferd.config.kinds.registry import KINDS, KindRegistry, S
from inferd.config.load import locate_model
from inferd.config.settings import Config, ConfigError
from inferd.doctor.memory import forecast
from inferd.server.capacity import memory_budget


class Fit(Struct, frozen=True, kw_only=True):
    """What serving a model by itself would take and give, beside all that runs now."""

    fits: bool
    reason: str = ""
    """Why it does not fit, or why that is not known; one line."""
    n_slots: int = 0
    """Requests that would run at once."""
    n_ctx: int = 0
    """Tokens that each of them may have, prompt and answer."""
    is_reduced: bool = False
    """Whether these are less than without a bound on memory."""
    needed_bytes: int = 0
    budget_bytes: int = 0
    """Free now, less the reserve; or as configured."""


def fit_alone(settings: S, config: Config, kinds: KindRegistry = KINDS) -> Fit:
    """Ask a worker what a model needs, and plan it as the daemon does.

    The worker is ended before it loads the model.

    Args:
        settings: of the backend that would serve it.
        config: with the budget and the limits.
        kinds: the kinds of backends.
    """
    budget = memory_budget(config)
    kind = kinds.of(settings)
    match kind.served_by:
        case InWorker(program=program) if (
            kind.memory(settings) is MemoryPolicy.DEMANDED
        ):
            pass
        case _:
            return Fit(fits=True, budget_bytes=budget.n_bytes)
    try:
        located = kind.doctor.without_hashes(locate_model(settings, kinds))
    except ConfigError as error:
        return Fit(fits=False, reason=str(error), budget_bytes=budget.n_bytes)
    known = forecast([(program, located)], budget, config.limits)
    if known.plan is None or settings.name in known.failures:
        reason = known.failures.get(settings.name, known.refusal)
        return Fit(fits=False, reason=reason, budget_bytes=budget.n_bytes)
    need = known.plan.needs[settings.name]
    return Fit(
        fits=True,
        n_slots=need.n_slots,
        n_ctx=need.n_ctx,
        is_reduced=known.plan.has_shrunk,
        needed_bytes=need.total,
        budget_bytes=budget.n_bytes,
    )
