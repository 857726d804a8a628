from collections.abc import Callable

import pytest
import trio

from inferd.server.turn import Turn


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

    def tell(self, position: int) -> None:
        self.told.append(position)


def running() -> tuple[Turn, Job]:
    turn, job = Turn(1), Job()
    turn.begin()
    turn.runs(job)
    return turn, job


async def test_one_that_has_not_begun_gives_its_permit_back_at_once():
    turn, told = Turn(1), list[str]()
    turn.begin()
    turn.pause(lambda: told.append("paused"))
    assert told == ["paused"]
    assert not turn.has_come
    with trio.move_on_after(0) as scope:
        await turn.wait()
    assert scope.cancelled_caught
    turn.begin()
    await turn.wait()
    assert turn.paused_s == 0


async def test_one_that_runs_keeps_it_until_its_job_stands_still(autojump_clock):
    turn, job = running()
    told: list[str] = []
    turn.pause(lambda: told.append("paused"))
    turn.pause(lambda: told.append("again"))
    assert (turn.has_come, told, job.told) == (True, [], ["pause"])
    job.on_paused()
    turn.waits()
    assert (turn.has_come, told) == (False, ["paused"])
    await trio.sleep(3)
    turn.begin()
    assert job.told == ["pause", "resume"]
    assert (turn.has_come, turn.paused_s) == (True, 3)


@pytest.mark.parametrize("is_watched", [True, False])
async def test_the_place_of_one_that_is_paused_is_told_to_those_who_watch(is_watched):
    turn, job = running()
    turn.is_watched = is_watched
    turn.pause(lambda: None)
    job.on_paused()
    for position in (2, 2, 1):
        turn.move(position)
    assert job.told[1:] == ([2, 1] if is_watched else [])


async def test_what_has_begun_is_not_turned_away():
    turn, job = running()
    turn.pause(lambda: None)
    job.on_paused()
    turn.lose()
    assert not turn.has_come
