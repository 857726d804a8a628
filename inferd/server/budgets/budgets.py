"""The budgets of all backends: requests reserve of them, and their file is kept."""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import structlog
import trio

from inferd.admission.budget import (
    Budget,
    BudgetLimits,
    BudgetRefusal,
    BudgetUse,
    is_plausible,
)
from inferd.backend.job import GenerateJob, Job
from inferd.config.kinds.remote import RemoteSettings
from inferd.config.settings import BackendSettings
from inferd.errors import BackendUnavailableError, InvalidRequestError
from inferd.limits.server import BUDGET_WRITE_S, MAX_KEPT_BUDGETS
from inferd.paths import state_directory
from inferd.server.budgets.file import (
    FILE_NAME,
    BudgetFileError,
    read_uses,
    write_uses,
)
from inferd.server.request_context import RequestContext
from inferd.server.telemetry.metrics import Metrics

log = structlog.get_logger("daemon")

BUDGET_GAUGES: Final = ("requests", "tokens")
"""What is left of a budget, as metrics tell it."""


class Budgets:
    """The budgets of the backends that have one.

    Args:
        path: of the file.
        clock: seconds since 1970.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        self._budgets: dict[str, Budget] = {}
        self._kept: dict[str, BudgetUse] = {}
        self._is_read = False
        self._told_until: dict[str, float] = {}
        self._changed = trio.Event()
        self._is_failing = False

    def configure(self, backends: Iterable[BackendSettings]) -> None:
        """Set the bounds of all backends; what was used stays."""
        limits = {
            each.name: BudgetLimits(
                each.max_requests_per_minute, each.max_tokens_per_day
            )
            for each in backends
            if isinstance(each, RemoteSettings)
        }
        bounded = {name: each for name, each in limits.items() if each.is_bounded}
        if bounded and not self._is_read:
            self._read()
        self._kept.update(self._uses())
        for name in [name for name in self._budgets if name not in bounded]:
            del self._budgets[name]
        for name, each in bounded.items():
            if name in self._budgets:
                self._budgets[name].limits = each
            else:
                self._budgets[name] = Budget(each, self._kept.get(name))

    def _read(self) -> None:
        """Read the file; one that cannot be read is replaced later."""
        self._is_read = True
        now_s = self._clock()
        try:
            uses = read_uses(self._path)
        except BudgetFileError as error:
            log.warning("budget.unreadable", reason=str(error))
        else:
            self._kept = {
                name: use for name, use in uses.items() if is_plausible(use, now_s)
            }

    def left(self, backend: str) -> BudgetLimits | None:
        """Return what is left of the budget of a backend; ``None`` if it has none."""
        budget = self._budgets.get(backend)
        return None if budget is None else budget.left(self._clock())

    def gauges(self) -> Iterator[tuple[str, str, float]]:
        """Yield what is left, by the name of the backend and of what is counted."""
        for name in self._budgets:
            for what, number in zip(BUDGET_GAUGES, self.left(name) or (), strict=True):
                if number is not None:
                    yield name, what, number

    def is_spent(self, backend: str) -> bool:
        """Return whether nothing is left of the budget of a backend."""
        budget = self._budgets.get(backend)
        return budget is not None and budget.refusal(0, self._clock()) is not None

    def check(self, backend: str) -> None:
        """Refuse a request before it waits, if nothing is left for its backend.

        Raises:
            BackendUnavailableError: with the time until something is.
        """
        if (budget := self._budgets.get(backend)) is not None:
            refusal = budget.refusal(0, self._clock())
            if refusal is not None:
                raise self._error(backend, refusal, 0)

    @contextmanager
    def reserving(
        self, backend: str, job: Job, context: RequestContext
    ) -> Iterator[None]:
        """Reserve of a backend's budget while a request runs, and settle at its end.

        What the backend has counted is settled; without that, the prompt and the tokens that
        came.

        Raises:
            BackendUnavailableError: too little is left.
            InvalidRequestError: the request asks for more than the budget of a day.
        """
        budget = self._budgets.get(backend)
        if budget is None:
            yield
            return
        n_answer = job.max_tokens if isinstance(job, GenerateJob) else 0
        n_reserved = context.input_tokens + n_answer
        if (refusal := budget.refusal(n_reserved, self._clock())) is not None:
            raise self._error(backend, refusal, n_reserved)
        budget.reserve(n_reserved, self._clock())
        self._changed.set()
        try:
            yield
        finally:
            counted = context.counted_tokens
            n_used = context.input_tokens + context.output.n_tokens
            n_used = n_used if counted is None else counted
            budget.settle(n_reserved, n_used, self._clock())
            self._changed.set()

    def _error(
        self, backend: str, refusal: BudgetRefusal, n_tokens: int
    ) -> BackendUnavailableError | InvalidRequestError:
        key, bound, retry_after_s = refusal
        if retry_after_s is None:
            return InvalidRequestError(
                f"the prompt and max_tokens are {n_tokens} tokens, and the budget of "
                f'backend "{backend}" is {bound} a day'
            )
        if (now_s := self._clock()) >= self._told_until.get(backend, 0.0):
            log.warning("budget.spent", backend=backend, setting=key, bound=bound)
            self._told_until[backend] = now_s + retry_after_s
        return BackendUnavailableError(
            f'too little is left of the budget of backend "{backend}": {key} is {bound}',
            retry_after_ms=math.ceil(retry_after_s * 1000),
        )

    # --- the file -----------------------------------------------------------------

    async def run(self) -> None:
        """Write the file after changes, each ``BUDGET_WRITE_S`` at most, until cancelled.

        A process that is killed loses what was used since then.
        """
        try:
            while True:
                await self._changed.wait()
                self._changed = trio.Event()
                await trio.to_thread.run_sync(self._write, self._all_uses())
                await trio.sleep(BUDGET_WRITE_S)
        finally:
            if self._changed.is_set():
                self._write(self._all_uses())

    def _uses(self) -> dict[str, BudgetUse]:
        now_s = self._clock()
        return {name: each.use(now_s) for name, each in self._budgets.items()}

    def _all_uses(self) -> dict[str, BudgetUse]:
        """Return what to keep: of backends that are not served, of the same day alone."""
        uses = self._uses()
        days = [each.day for each in uses.values()]
        others = {
            name: use
            for name, use in self._kept.items()
            if name not in uses and use.day >= max(days, default=0)
        }
        return dict([*uses.items(), *others.items()][:MAX_KEPT_BUDGETS])

    def _write(self, uses: dict[str, BudgetUse]) -> None:
        try:
            write_uses(self._path, uses)
        except BudgetFileError as error:
            if not self._is_failing:
                log.warning("budget.unwritten", reason=str(error))
            self._is_failing = True
        else:
            self._is_failing = False


def no_budgets() -> Budgets:
    """Make the budgets of a daemon whose backends have none."""
    return Budgets(Path("/nonexistent"))


def make_budgets(backends: Iterable[BackendSettings], metrics: Metrics) -> Budgets:
    """Make the budgets of a configuration, and export what is left of them."""
    budgets = Budgets(state_directory() / FILE_NAME)
    budgets.configure(backends)
    metrics.watch_budgets(budgets.gauges)
    return budgets
