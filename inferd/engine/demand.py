"""Ask a worker what memory a backend needs, without loading its model."""

from functools import partial

import trio

from inferd.config.settings import BackendSettings, LimitSettings
from inferd.engine.channel.validator import SessionEndedError
from inferd.engine.supervisor.spawn import WorkerStart
from inferd.engine.trial_load import trial_load
from inferd.ipc.worker import Load
from inferd.memory.plan import InsufficientMemoryError, MemoryDemand, MemoryShare


class DemandUnknownError(Exception):
    """A worker did not tell what memory it needs.

    Args:
        text: why.
        is_broken_file: whether the content of a model's file is at fault.
    """

    def __init__(self, text: str, *, is_broken_file: bool = False) -> None:
        super().__init__(text)
        self.is_broken_file = is_broken_file


def predict_demand(
    program: str, settings: BackendSettings, n_slots: int, limits: LimitSettings
) -> MemoryDemand:
    """Return the memory demand that a worker reports; it is killed before it loads.

    If a CPU variant crashes, the next one is tried. This blocks, and runs an event loop of
    its own.

    Args:
        program: of the worker.
        settings: of the backend, with the paths of its files.
        n_slots: requests that are to run at once.
        limits: with the timeout.

    Raises:
        DemandUnknownError: the worker ended, or reported none.
    """
    demands: list[MemoryDemand] = []

    async def refuse(demand: MemoryDemand) -> MemoryShare:
        demands.append(demand)
        raise InsufficientMemoryError

    start = WorkerStart(program, Load(settings=settings, n_slots=n_slots))
    attempt = partial(trial_load, start, refuse, silence_s=limits.load_silence_s)
    try:
        trio.run(attempt)
    except SessionEndedError as error:
        raise DemandUnknownError(
            str(error), is_broken_file=error.is_broken_file
        ) from error
    except InsufficientMemoryError:
        return demands[0]
    raise DemandUnknownError("the worker loaded without reporting its memory demand")
