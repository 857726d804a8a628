"""Loading of a model on trial, in a worker that is killed afterwards."""

from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from inferd.engine.channel.validator import SessionEndedError
from inferd.engine.session import WorkerSession
from inferd.engine.supervisor.process import start_worker
from inferd.engine.supervisor.spawn import WorkerStart
from inferd.engine.supervisor.variant_fallback import VariantFallback
from inferd.ipc.worker import Loaded, Loading, SandboxReport
from inferd.memory.coordinator import RequestShare
from inferd.memory.plan import InsufficientMemoryError


class TrialLoad(NamedTuple):
    """What a worker reported until it was ready."""

    loaded: Loaded
    sandbox_report: SandboxReport | None
    crashed: tuple[str, ...]
    """CPU variants that crashed before one was ready."""


def _ignore(_: Loading) -> None:
    pass


async def trial_load(
    start: WorkerStart,
    request_share: RequestShare,
    *,
    silence_s: float,
    on_loading: Callable[[Loading], None] = _ignore,
) -> TrialLoad:
    """Have a worker load a model, with lower CPU variants if one crashes; then kill it.

    Args:
        start: the program to start, and what to load.
        request_share: grants the worker memory; may raise ``InsufficientMemoryError``.
        silence_s: seconds without a message after which the worker is killed.
        on_loading: called with each phase, also as a sign of life.

    Raises:
        SessionEndedError: the worker failed, died or was silent.
        InsufficientMemoryError: ``request_share`` raised it.
        OSError: no worker can be started.
    """
    fallback = VariantFallback()
    while True:
        load = replace(start.load, crashed_variants=fallback.crashed)
        attempt = start._replace(load=load)
        outcome, session = await _attempt(attempt, request_share, silence_s, on_loading)
        match outcome:
            case Loaded():
                return TrialLoad(outcome, session.sandbox_report, fallback.crashed)
            case SessionEndedError(reason=reason):
                if not fallback.died(reason, session.variant):
                    raise outcome
            case InsufficientMemoryError():
                raise outcome


async def _attempt(
    start: WorkerStart,
    request_share: RequestShare,
    silence_s: float,
    on_loading: Callable[[Loading], None],
) -> tuple[Loaded | SessionEndedError | InsufficientMemoryError, WorkerSession]:
    """Load once; errors are returned, as ``start_worker`` would raise them in a group."""
    async with start_worker(start.program, None, start.credential) as process:
        session = WorkerSession(process)
        try:
            loaded = await session.load(
                start.load, on_loading, request_share, silence_s=silence_s
            )
        except (SessionEndedError, InsufficientMemoryError) as error:
            return error, session
        return loaded, session
