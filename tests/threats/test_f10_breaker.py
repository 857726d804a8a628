import pytest
import trio
import trio.testing
from hypothesis import given, settings, strategies as st

from inferd.backend.job import GenerateJob, Sampling, Turn
from inferd.config.kinds.mock import MockSettings
from inferd.config.settings import LimitSettings
from inferd.engine.engine import Engine
from inferd.engine.supervisor.restart_policy import RestartPolicy
from inferd.errors import InvalidRequestError
from inferd.ipc.worker import Drop, Prepare, Refused, Run
from inferd.limits.engine import RESTART_BACKOFF_MAX_S
from inferd.server.telemetry.status import StatusBoard
from tests.fakes.memory_coordinator import unlimited_coordinator
from tests.fakes.starting import start_of
from tests.fakes.worker import Workers

JOB = GenerateJob(
    turns=[Turn("user", "hello")],
    max_tokens=10,
    sampling=Sampling(temperature=0, top_p=1, top_k=0, seed=0),
)
OPEN_S = 30.0


def deaths(policy: RestartPolicy, *served: bool):
    return [policy.died(had_served=each) for each in served]


def make_policy(breaker_deaths: int) -> RestartPolicy:
    return RestartPolicy(breaker_deaths=breaker_deaths, breaker_open_s=OPEN_S)


@settings(max_examples=50)
@given(st.lists(st.booleans(), max_size=50), st.integers(1, 8))
def test_no_pause_is_longer_than_it_may_be(served, breaker_deaths):
    for pause in deaths(make_policy(breaker_deaths), *served):
        longest = OPEN_S if pause.breaker_is_open else RESTART_BACKOFF_MAX_S
        assert 0 <= pause.seconds <= longest


@settings(max_examples=50)
@given(st.lists(st.booleans(), max_size=50), st.integers(2, 8))
def test_the_breaker_opens_on_deaths_in_a_row_that_served_nobody(served, n_deaths):
    in_vain = 0
    for had_served, pause in zip(
        served, deaths(make_policy(n_deaths), *served), strict=True
    ):
        in_vain = 0 if had_served else in_vain + 1
        assert pause.breaker_is_open == (in_vain >= n_deaths)


async def test_clients_that_are_refused_or_leave_open_no_breaker(
    monkeypatch, autojump_clock
):
    workers = Workers()
    monkeypatch.setattr("inferd.engine.engine.start_worker", workers.start)
    limits = LimitSettings(breaker_deaths=1)
    engine = Engine(
        start_of(MockSettings(name="chat"), n_slots=1, limits=limits),
        limits=limits,
        coordinator=unlimited_coordinator("chat"),
        observer=StatusBoard(),
    )

    async def ask(scope: trio.CancelScope):
        with scope:
            async with engine.prepare(JOB) as job, engine.generate(job) as stream:
                async for _ in stream:
                    pass

    async with trio.open_nursery() as nursery:
        nursery.start_soon(engine.run, lambda: None)
        worker = await workers.next_ready()
        for _ in range(20):
            nursery.start_soon(ask, scope := trio.CancelScope())
            await worker.prepare()
            await worker.expect(Run)
            scope.cancel()
            await worker.expect(Drop)
            nursery.start_soon(refused, engine)
            ticket = (await worker.expect(Prepare)).ticket
            await worker.say(Refused(ticket=ticket, reason="no"))
            await worker.expect(Drop)
        assert engine.ready
        assert engine.unavailable is None
        nursery.cancel_scope.cancel()


async def refused(engine: Engine):
    with pytest.raises(InvalidRequestError):
        async with engine.prepare(JOB):
            pytest.fail("it was prepared")
