"""A real worker that is given a file which it should not load."""

import pytest

from inferd.config.settings import BackendSettings
from inferd.engine.channel.validator import SessionEndedError
from inferd.engine.session import WorkerSession
from inferd.engine.supervisor.process import start_worker
from inferd.ipc.worker import Load
from tests.fakes.memory_coordinator import grant_all
from tests.fakes.starting import program_of


async def failed_load(settings: BackendSettings) -> tuple[list[str], str]:
    """Have a worker load what is no whole model; give its phases and why not."""
    phases: list[str] = []
    async with start_worker(program_of(settings)) as process:
        with pytest.raises(SessionEndedError) as caught:
            await WorkerSession(process).load(
                Load(settings=settings, n_slots=1),
                lambda loading: phases.append(loading.phase),
                grant_all,
                silence_s=20,
            )
    return phases, str(caught.value)
