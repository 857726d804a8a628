"""What jobs with media need beside; ``test_engine`` has the life of all others."""

import errno
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing
from msgspec.structs import replace

from inferd.backend.job import RenderedJob, ToolSpec
from inferd.config.kinds.mock import MockSettings
from inferd.config.settings import LimitSettings
from inferd.engine.channel.demultiplexer import WorkerDiedError
from inferd.engine.engine import Engine
from inferd.errors import BackendUnavailableError, InternalError, InvalidRequestError
from inferd.ipc.worker import Append, Drop, Prepare, PromptReady
from inferd.limits.engine import PREPARE_ATTEMPTS_MAX
from inferd.limits.protocol import MAX_JOB_MEDIA
from tests.fakes.fds import contents, memfds, n_open
from tests.fakes.media import job_with, speech
from tests.fakes.memory_coordinator import unlimited_coordinator
from tests.fakes.observer import Deaf
from tests.fakes.starting import start_of
from tests.fakes.worker import Workers

LIMITS = LimitSettings()


@asynccontextmanager
async def engine_at_work(monkeypatch):
    """An engine, its workers, and the first of these, which is ready."""
    workers = Workers()
    monkeypatch.setattr("inferd.engine.engine.start_worker", workers.start)
    engine = Engine(
        start_of(MockSettings(name="m"), n_slots=2, limits=LIMITS),
        limits=LIMITS,
        coordinator=unlimited_coordinator("m"),
        observer=Deaf(),
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(engine.run, lambda: None)
        worker = await workers.next_ready()
        await trio.testing.wait_all_tasks_blocked()
        yield engine, workers, worker
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def preparing(engine, job, fds):
    """Prepare a job in the background; gives where it will be."""
    found = []

    async def prepare():
        async with engine.prepare(job, fds) as prepared:
            found.append(prepared)
            await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(prepare)
        yield found
        nursery.cancel_scope.cancel()


async def run(engine, prepared):
    async with engine._running(prepared):
        await trio.sleep_forever()


async def test_a_job_goes_to_the_worker_with_its_media(monkeypatch, autojump_clock):
    async with engine_at_work(monkeypatch) as (engine, _, worker):
        with memfds(b"one", b"two") as fds:
            async with preparing(engine, job_with(2), fds):
                await worker.prepare()
        assert contents(worker.fds) == [b"one", b"two"]


async def test_the_next_worker_gets_media_and_what_was_appended(
    monkeypatch, autojump_clock
):
    async with engine_at_work(monkeypatch) as (engine, workers, worker):
        with memfds(b"sound") as fds:
            async with preparing(engine, speech(), fds) as found:
                ticket = (await worker.prepare()).ticket
                await trio.testing.wait_all_tasks_blocked()
                for n_bytes in (4, 8):
                    engine.append_audio(found[0], n_bytes, is_last=n_bytes == 8)
                    told = await worker.expect(Append)
                    assert told.n_bytes == n_bytes
                worker.die()
                contents(worker.fds)
                worker = await workers.next_ready()
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(run, engine, found[0])
                    again = await worker.expect(Prepare)
                    told = await worker.expect(Append)
                    nursery.cancel_scope.cancel()
    assert (again.ticket, told) == (ticket, replace(told, n_bytes=8, is_last=True))
    assert contents(worker.fds) == [b"sound"]


async def test_nothing_is_appended_to_a_job_that_is_over(monkeypatch, autojump_clock):
    async with engine_at_work(monkeypatch) as (engine, _, worker):
        with memfds(b"sound") as fds:
            async with preparing(engine, speech(), fds) as found:
                await worker.prepare()
                await trio.testing.wait_all_tasks_blocked()
                engine.append_audio(found[0], 4, is_last=False)
            engine.append_audio(found[0], 8, is_last=True)
        told = [type(each) for each in await worker.hear()]
        assert told == [Append, Drop]
        assert not engine._appended
        assert not engine._fds
        contents(worker.fds)


async def test_media_that_cannot_be_sent_make_the_backend_unavailable(
    monkeypatch, autojump_clock
):
    def refuse(_):
        raise OSError(errno.EMFILE, "Too many open files")

    async with engine_at_work(monkeypatch) as (engine, _, worker):
        before = n_open()
        with memfds(b"one") as fds, monkeypatch.context() as patch:
            patch.setattr("os.dup", refuse)
            with pytest.raises(BackendUnavailableError, match="Too many open files"):
                async with engine.prepare(job_with(1), fds):
                    pass
        assert [type(each) for each in await worker.hear()] == [Drop]
        with memfds(b"one") as fds:
            async with preparing(engine, job_with(1), fds):
                await worker.prepare()
        assert contents(worker.fds) == [b"one"]
        assert n_open() == before


@pytest.mark.parametrize(
    ("n_media", "n_fds", "error"),
    [
        (1, 0, InternalError),
        (0, 1, InternalError),
        (MAX_JOB_MEDIA + 1, MAX_JOB_MEDIA + 1, InvalidRequestError),
    ],
)
async def test_a_job_needs_as_many_descriptors_as_media(
    monkeypatch, autojump_clock, n_media, n_fds, error
):
    async with engine_at_work(monkeypatch) as (engine, _, worker):
        with pytest.raises(error):
            async with engine.prepare(job_with(n_media), [0] * n_fds):
                pass
        assert await worker.hear() == []


# --- what is not plain --------------------------------------------------------------------


class FakePreparer:
    """Writes one thing, after so many deaths of its worker."""

    def __init__(self, n_deaths=0):
        self.n_deaths = n_deaths
        self.jobs = []

    async def render(self, job):
        await trio.lowlevel.checkpoint()
        self.jobs.append(job)
        if len(self.jobs) <= self.n_deaths:
            raise WorkerDiedError("it is gone")
        return WRITTEN

    async def aclose(self):
        await trio.lowlevel.checkpoint()


WRITTEN = RenderedJob(pieces=("written",), grammar="start:")
PLAIN = job_with(0)
ASKING = replace(PLAIN, tools=(ToolSpec(name="f", description="", input_schema="{}"),))


async def test_jobs_that_are_not_plain_are_rendered_by_the_preparer(
    monkeypatch, autojump_clock
):
    async with engine_at_work(monkeypatch) as (engine, _, _worker):
        engine._session.preparer = FakePreparer()
        assert await engine.render(PLAIN) is None
        assert await engine.render(ASKING) == WRITTEN
        assert engine._session.preparer.jobs == [ASKING]


async def test_without_a_prompt_format_nothing_is_rendered(monkeypatch, autojump_clock):
    async with engine_at_work(monkeypatch) as (engine, _, _worker):
        assert await engine.render(ASKING) is None


async def test_a_job_is_rendered_again_if_its_worker_was_replaced(
    monkeypatch, autojump_clock
):
    async with engine_at_work(monkeypatch) as (engine, _, _worker):
        engine._session.preparer = FakePreparer(n_deaths=1)
        assert await engine.render(ASKING) == WRITTEN
        engine._session.preparer = FakePreparer(n_deaths=PREPARE_ATTEMPTS_MAX)
        with pytest.raises(BackendUnavailableError):
            await engine.render(ASKING)


async def test_a_worker_gets_the_rendered_prompt_without_its_sources(
    monkeypatch, autojump_clock
):
    async with engine_at_work(monkeypatch) as (engine, _, worker):
        asked = replace(ASKING, rendered=WRITTEN)
        async with preparing(engine, asked, ()) as found:
            told = await worker.prepare()
            await trio.testing.wait_all_tasks_blocked()
            assert (told.job.rendered, told.job.turns, told.job.tools) == (
                WRITTEN,
                [],
                (),
            )
            assert found[0].job == asked


async def test_a_job_that_compiles_delays_no_other(monkeypatch, autojump_clock):
    async with engine_at_work(monkeypatch) as (engine, _, worker):
        held = replace(ASKING, rendered=WRITTEN)
        async with preparing(engine, held, ()) as found, trio.open_nursery() as nursery:
            first = await worker.expect(Prepare)
            async with (
                preparing(engine, held, ()),
                preparing(engine, PLAIN, ()) as other,
            ):
                second = await worker.expect(Prepare)
                assert second.job == PLAIN
                await worker.say(PromptReady(ticket=second.ticket, prompt_tokens=1))
                await trio.testing.wait_all_tasks_blocked()
                assert (len(found), len(other)) == (0, 1)
                await worker.say(PromptReady(ticket=first.ticket, prompt_tokens=1))
                third = await worker.expect(Prepare)
                assert third.job == first.job
            nursery.cancel_scope.cancel()
