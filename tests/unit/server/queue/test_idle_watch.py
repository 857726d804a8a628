import pytest
import trio

from inferd.admission.control import Admission, RequestTraits
from inferd.backend.caller import Caller
from inferd.limits.admission import AUDIO_IDLE_S
from inferd.server.queue.idle_watch import IdleWatch
from inferd.server.queue.requests import RequestQueue
from tests.unit.server.queue.test_permit import Job

LITTLE_S = AUDIO_IDLE_S / 2
LONG_S = 2 * AUDIO_IDLE_S


class Prompt(Job):
    """Stands still as soon as it is told to."""

    def pause(self, on_paused) -> None:
        super().pause(on_paused)
        on_paused()


@pytest.fixture
async def live(nursery):
    """Hold the only permit for a job that waits for sound."""
    gate = Admission(max_active=1, max_queued=9)
    queue = RequestQueue(gate)
    with queue.admitted(RequestTraits(is_live=True)) as permit:
        permit.set_job(job := Prompt())
        idle_watch = IdleWatch(queue, permit)
        nursery.start_soon(idle_watch.run)
        yield queue, idle_watch, job
        nursery.cancel_scope.cancel()


async def permits(queue: RequestQueue, seconds: float) -> int:
    await trio.sleep(seconds)
    return queue.count_active()


async def test_a_request_that_has_work_keeps_its_permit(live, autojump_clock):
    queue, idle_watch, _ = live
    idle_watch.received(100, is_last=False)
    idle_watch.idle_until(50)
    assert await permits(queue, LONG_S) == 1


async def test_a_request_idle_for_long_has_no_permit_until_there_is_enough_audio(
    live, autojump_clock
):
    queue, idle_watch, job = live
    idle_watch.idle_until(50)
    assert await permits(queue, LITTLE_S) == 1
    assert await permits(queue, LITTLE_S + 0.1) == 0
    idle_watch.received(49, is_last=False)
    assert await permits(queue, LONG_S) == 0
    idle_watch.received(50, is_last=False)
    assert await permits(queue, 0.1) == 1
    assert job.told == ["pause", "resume"]


async def test_a_short_idle_time_costs_no_permit(live, autojump_clock):
    queue, idle_watch, job = live
    for n_seconds in range(1, 10):
        idle_watch.idle_until(n_seconds)
        assert await permits(queue, 1.0) == 1
        idle_watch.received(n_seconds, is_last=False)
        assert await permits(queue, 0.0) == 1
    assert job.told == []


async def test_the_end_of_the_audio_is_work(live, autojump_clock):
    queue, idle_watch, _ = live
    idle_watch.idle_until(50)
    assert await permits(queue, LONG_S) == 0
    idle_watch.received(1, is_last=True)
    assert await permits(queue, 0.1) == 1
    idle_watch.idle_until(99)
    assert await permits(queue, LONG_S) == 1


async def test_a_resumed_request_waits_in_the_queue(live, autojump_clock):
    queue, idle_watch, job = live
    idle_watch.idle_until(50)
    await trio.sleep(LONG_S)
    with queue.admitted(RequestTraits(Caller(5))) as other:
        assert other.is_granted
        idle_watch.received(50, is_last=False)
        await trio.sleep(0.1)
        assert job.told == ["pause"]
    assert job.told == ["pause", "resume"]


async def test_an_idle_request_in_the_queue_is_passed_over(live, autojump_clock):
    queue, idle_watch, job = live
    with (
        queue.admitted(RequestTraits(Caller(5))) as other,
        queue.admitted(RequestTraits(Caller(6))) as third,
    ):
        idle_watch.idle_until(50)
        await trio.sleep(LONG_S)
        assert other.is_granted
        idle_watch.received(50, is_last=False)
        await trio.sleep(0.1)  # it waits behind the third
        idle_watch.idle_until(99)
        await trio.sleep(LONG_S)
        assert (other.is_granted, third.is_granted) == (True, False)  # a quantum each
    assert queue.count_active() == 0
    idle_watch.received(99, is_last=False)
    await trio.sleep(0.1)
    assert job.told == ["pause", "resume"]
