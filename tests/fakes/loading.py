"""A real worker that is given a file which it should not load."""

import pytest

from inferd.config import BackendSettings
from inferd.engine.conduct import SessionOverError
from inferd.engine.process import start_worker
from inferd.engine.session import Session
from inferd.ipc import Load
from tests.fakes.ledger import allot_all


async def failed_load(settings: BackendSettings) -> tuple[list[str], str]:
    """Have a worker load what is no whole model; give its phases and why not."""
    phases: list[str] = []
    async with start_worker() as process:
        with pytest.raises(SessionOverError) as caught:
            await Session(process).load(
                Load(settings=settings, n_slots=1),
                lambda loading: phases.append(loading.phase),
                allot_all,
                silence_s=20,
            )
    return phases, str(caught.value)
