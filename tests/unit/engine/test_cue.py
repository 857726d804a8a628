import pytest
import trio
import trio.testing

from inferd.engine.cue import Cue


async def come_at(cue: Cue, at_s: float):
    await trio.sleep_until(at_s)
    cue.come()


async def test_what_waits_is_cut_short_when_it_comes(autojump_clock, nursery):
    cue = Cue()
    nursery.start_soon(come_at, cue, 3)
    with cue.until_come():
        await trio.sleep(1000)
    assert trio.current_time() == 3


async def test_what_begins_once_it_has_come_ends_at_its_first_wait(autojump_clock):
    cue = Cue()
    cue.come()
    begun = []
    for _ in range(2):
        with cue.until_come():
            begun.append(trio.current_time())
            await trio.sleep(1000)
    assert begun == [0, 0]


async def test_what_is_over_before_is_left_alone(autojump_clock, nursery):
    cue = Cue()
    nursery.start_soon(come_at, cue, 3)
    with cue.until_come():
        await trio.sleep(1)
    await trio.sleep(5)
    assert trio.current_time() == 6


async def test_a_cancellation_from_outside_goes_on_outside(autojump_clock):
    cue = Cue()
    with trio.move_on_after(1) as scope:
        with cue.until_come():
            await trio.sleep(1000)
        pytest.fail("it went on")
    assert scope.cancelled_caught


async def test_a_failure_inside_is_passed_on():
    cue = Cue()
    with pytest.raises(ZeroDivisionError), cue.until_come():
        raise ZeroDivisionError
    cue.come()
