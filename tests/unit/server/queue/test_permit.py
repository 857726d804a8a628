from collections.abc import Callable

import pytest
import trio

from inferd.errors import DrainingError
from inferd.server.queue.permit import Permit


class Job:
    """What a permit is for, as it is told."""

    def __init__(self) -> None:
        self.told: list[str | int] = []
        self.on_paused: Callable[[], object]

    def pause(self, on_paused: Callable[[], object]) -> None:
        self.told.append("pause")
        self.on_paused = on_paused

    def resume(self) -> None:
        self.told.append("resume")

    def report_queue_position(self, position: int) -> None:
        self.told.append(position)


def running() -> tuple[Permit, Job]:
    permit, job = Permit(1), Job()
    permit.grant()
    permit.set_job(job)
    return permit, job


async def test_a_request_that_has_not_started_is_preempted_at_once():
    permit, told = Permit(1), list[str]()
    permit.grant()
    permit.pause(lambda: told.append("paused"))
    assert told == ["paused"]
    assert not permit.is_granted
    with trio.move_on_after(0) as scope:
        await permit.wait()
    assert scope.cancelled_caught
    permit.grant()
    await permit.wait()
    assert permit.paused_s == 0


async def test_a_running_request_keeps_its_permit_until_its_job_is_paused(
    autojump_clock,
):
    permit, job = running()
    told: list[str] = []
    permit.pause(lambda: told.append("paused"))
    permit.pause(lambda: told.append("again"))
    assert (permit.is_granted, told, job.told) == (True, [], ["pause"])
    job.on_paused()
    permit.mark_waiting()
    assert (permit.is_granted, told) == (False, ["paused"])
    await trio.sleep(3)
    permit.grant()
    assert job.told == ["pause", "resume"]
    assert (permit.is_granted, permit.paused_s) == (True, 3)


@pytest.mark.parametrize("wants_position", [True, False])
async def test_a_paused_job_reports_its_position_if_the_client_wants_it(
    wants_position,
):
    permit, job = running()
    permit.wants_position = wants_position
    permit.pause(lambda: None)
    job.on_paused()
    for position in (2, 2, 1):
        permit.set_position(position)
    assert job.told[1:] == ([2, 1] if wants_position else [])


async def test_a_started_request_is_not_rejected():
    permit, job = running()
    permit.pause(lambda: None)
    job.on_paused()
    permit.reject(DrainingError())
    assert not permit.is_granted
