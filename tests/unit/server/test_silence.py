import pytest
import trio

from inferd.admission.gate import Admission, Claim
from inferd.limits import SILENT_S
from inferd.server.silence import Silence
from inferd.server.turns import Turns
from tests.unit.server.test_turn import Job

LITTLE_S = SILENT_S / 2
LONG_S = 2 * SILENT_S


class Prompt(Job):
    """Stands still as soon as it is told to."""

    def pause(self, on_paused) -> None:
        super().pause(on_paused)
        on_paused()


@pytest.fixture
async def live(nursery, autojump_clock):
    """Hold the only permit for a job that waits for sound."""
    gate = Admission(max_active=1, max_queued=9)
    turns = Turns(gate)
    with turns.admitted(Claim(is_live=True)) as turn:
        turn.runs(job := Prompt())
        silence = Silence(turns, turn)
        nursery.start_soon(silence.run)
        yield turns, silence, job
        nursery.cancel_scope.cancel()


async def permits(turns: Turns, seconds: float) -> int:
    await trio.sleep(seconds)
    return turns.count_active()


async def test_who_has_something_to_do_keeps_the_permit(live):
    turns, silence, _ = live
    silence.has_come(100, is_last=False)
    silence.lasts_until(50)
    assert await permits(turns, LONG_S) == 1


async def test_who_has_nothing_to_do_for_long_holds_none_until_there_is_enough(live):
    turns, silence, job = live
    silence.lasts_until(50)
    assert await permits(turns, LITTLE_S) == 1
    assert await permits(turns, LITTLE_S + 0.1) == 0
    silence.has_come(49, is_last=False)
    assert await permits(turns, LONG_S) == 0
    silence.has_come(50, is_last=False)
    assert await permits(turns, 0.1) == 1
    assert job.told == ["pause", "resume"]


async def test_a_short_silence_costs_nothing(live):
    turns, silence, job = live
    for n_seconds in range(1, 10):
        silence.lasts_until(n_seconds)
        assert await permits(turns, 1.0) == 1
        silence.has_come(n_seconds, is_last=False)
        assert await permits(turns, 0.0) == 1
    assert job.told == []


async def test_the_end_of_the_sound_is_something_to_do(live):
    turns, silence, _ = live
    silence.lasts_until(50)
    assert await permits(turns, LONG_S) == 0
    silence.has_come(1, is_last=True)
    assert await permits(turns, 0.1) == 1
    silence.lasts_until(99)
    assert await permits(turns, LONG_S) == 1


async def test_who_wakes_waits_for_its_turn(live):
    turns, silence, job = live
    silence.lasts_until(50)
    await trio.sleep(LONG_S)
    with turns.admitted(Claim(uid=5)) as other:
        assert other.has_come
        silence.has_come(50, is_last=False)
        await trio.sleep(0.1)
        assert job.told == ["pause"]
    assert job.told == ["pause", "resume"]


async def test_who_rests_in_the_queue_passes_its_turn_on(live):
    turns, silence, job = live
    with turns.admitted(Claim(uid=5)) as other, turns.admitted(Claim(uid=6)) as third:
        silence.lasts_until(50)
        await trio.sleep(LONG_S)
        assert other.has_come
        silence.has_come(50, is_last=False)
        await trio.sleep(0.1)  # it waits behind the third
        silence.lasts_until(99)
        await trio.sleep(LONG_S)
        assert (other.has_come, third.has_come) == (True, False)  # a quantum each
    assert turns.count_active() == 0
    silence.has_come(99, is_last=False)
    await trio.sleep(0.1)
    assert job.told == ["pause", "resume"]
