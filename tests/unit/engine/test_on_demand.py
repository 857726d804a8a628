import errno
import signal
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from inferd.backend.interface import StartFailedError
from inferd.backend.job import GenerateJob, Sampling, Turn
from inferd.config.kinds.mock import MockSettings
from inferd.config.settings import LimitSettings
from inferd.engine.on_demand import DemandEngine
from inferd.errors import BackendNotReadyError
from inferd.ipc.worker import Load, Loaded, LoadFailed, Prepare, PromptReady
from inferd.limits.engine import PREPARE_ATTEMPTS_MAX
from inferd.memory.coordinator import MemoryCoordinator
from inferd.memory.plan import MIB, MemoryBudget, MemoryDemand, MemoryShare
from tests.fakes.observer import Deaf
from tests.fakes.starting import start_of
from tests.fakes.worker import CAPABILITIES, FakeWorker, Workers

SETTINGS = MockSettings(name="chat", load="demand")
DEMAND = MemoryDemand(n_ctx=512, is_set=False, has_slots=True, weights=MIB, own=10)
JOB = GenerateJob(
    turns=[Turn("user", "hello")],
    max_tokens=10,
    sampling=Sampling(temperature=0, top_p=1, top_k=0, seed=0),
)


class Home:
    def __init__(self) -> None:
        self.workers = Workers()
        limits = LimitSettings()
        self.coordinator = MemoryCoordinator(
            ["chat"],
            MemoryBudget(n_bytes=2**50, n_slots=2, slots_are_set=True),
            on_demand=["chat"],
        )
        self.engine = DemandEngine(
            start_of(SETTINGS, n_slots=2, limits=limits),
            limits=limits,
            coordinator=self.coordinator,
            observer=Deaf(),
        )
        self.scope = trio.CancelScope()
        self.is_ready = trio.Event()
        self.nursery: trio.Nursery

    async def load(self) -> FakeWorker:
        """Load the model; ``scope`` unloads it."""
        self.scope = trio.CancelScope()
        self.nursery.start_soon(self._load, self.scope)
        worker = await self.workers.next()
        load = await worker.expect(Load)
        assert not load.is_outline
        await worker.say(DEMAND)
        await worker.expect(MemoryShare)
        await worker.say(Loaded(capabilities=CAPABILITIES, library="fake"))
        await trio.testing.wait_all_tasks_blocked()
        return worker

    async def _load(self, scope: trio.CancelScope) -> None:
        with scope:
            await self.engine.load(lambda: None)


@asynccontextmanager
async def home(monkeypatch):
    opened = Home()
    for module in ("engine", "trial_load"):
        monkeypatch.setattr(
            f"inferd.engine.{module}.start_worker", opened.workers.start
        )
    with trio.fail_after(10_000):
        async with trio.open_nursery() as opened.nursery:
            yield opened
            opened.nursery.cancel_scope.cancel()


async def outline(opened: Home) -> FakeWorker:
    """Have the engine read the headers."""
    opened.nursery.start_soon(opened.engine.run, opened.is_ready.set)
    worker = await opened.workers.next()
    assert (await worker.expect(Load)).is_outline
    return worker


async def test_headers_are_read_at_the_start_and_no_worker_stays(
    monkeypatch, autojump_clock
):
    async with home(monkeypatch) as opened:
        worker = await outline(opened)
        await worker.say(DEMAND)
        await worker.expect(MemoryShare)
        await worker.say(Loaded(capabilities=CAPABILITIES, library="fake"))
        await opened.is_ready.wait()
        assert opened.workers.living == []
        assert not opened.engine.ready
        assert opened.engine.unavailable is None
        assert opened.engine.capabilities == CAPABILITIES
        assert opened.coordinator.bytes_of("chat") > MIB


@pytest.mark.parametrize("is_broken", [False, True])
async def test_a_file_that_cannot_be_served_fails_the_start(
    monkeypatch, autojump_clock, is_broken
):
    opened = Home()
    monkeypatch.setattr("inferd.engine.trial_load.start_worker", opened.workers.start)
    failed = LoadFailed(
        reason="no such file", detail="/x: no such file", is_broken_file=is_broken
    )

    def is_told(error: StartFailedError) -> bool:
        return (error.reason, error.is_broken_file) == (failed.reason, is_broken)

    with pytest.RaisesGroup(
        pytest.RaisesExc(
            StartFailedError, match="backend chat: /x: no such file", check=is_told
        )
    ):
        async with trio.open_nursery() as opened.nursery:
            worker = await outline(opened)
            await worker.say(failed)
            worker.die(3)


async def test_a_worker_that_cannot_be_started_fails_the_reading_of_headers(
    monkeypatch,
):
    @asynccontextmanager
    async def start(_program, *_others):
        raise OSError(errno.EMFILE, "Too many open files")
        yield

    monkeypatch.setattr("inferd.engine.trial_load.start_worker", start)
    with pytest.raises(StartFailedError, match="backend chat: it cannot") as caught:
        await Home().engine.read_headers()
    assert caught.value.reason == "it cannot be started: Too many open files"
    assert not caught.value.is_broken_file


async def test_jobs_wait_for_the_load_and_are_prepared_again_after_the_next(
    monkeypatch, autojump_clock
):
    async with home(monkeypatch) as opened:
        prepared = trio.Event()

        async def prepare() -> None:
            async with opened.engine.prepare(JOB):
                prepared.set()
                await trio.sleep_forever()

        opened.nursery.start_soon(prepare)
        ticket = -1
        for _ in range(PREPARE_ATTEMPTS_MAX + 1):  # an unload is no failed attempt
            worker = await opened.load()
            ticket = (await worker.expect(Prepare)).ticket
            assert opened.engine.ready
            opened.engine.detach()
            opened.scope.cancel()
            await trio.testing.wait_all_tasks_blocked()
            assert opened.workers.living == []
            assert not prepared.is_set()
        worker = await opened.load()
        assert (await worker.expect(Prepare)).ticket == ticket
        await worker.say(PromptReady(ticket=ticket, prompt_tokens=3))
        await prepared.wait()


async def test_a_load_that_fails_says_why_and_fails_the_jobs_that_wait(
    monkeypatch, autojump_clock
):
    async with home(monkeypatch) as opened:
        errors: list[str] = []

        async def prepare() -> None:
            with pytest.raises(BackendNotReadyError) as error:
                async with opened.engine.prepare(JOB):
                    pass
            errors.append(str(error.value))

        async def fail_to_load() -> None:
            with pytest.raises(StartFailedError) as error:
                await opened.engine.load(lambda: None)
            assert error.value.reason == "killed by SIGKILL"
            opened.engine.load_failed(error.value.reason, is_out_of_service=False)

        opened.nursery.start_soon(prepare)
        opened.nursery.start_soon(fail_to_load)
        worker = await opened.workers.next()
        await worker.expect(Load)
        worker.die(-signal.SIGKILL)
        await trio.testing.wait_all_tasks_blocked()
        assert errors == ["backend not ready: killed by SIGKILL"]
        assert opened.engine.unavailable is None
        opened.engine.load_failed("again", is_out_of_service=True)
        assert opened.engine.unavailable == "again"
        opened.engine.back_in_service()
        assert opened.engine.unavailable is None
