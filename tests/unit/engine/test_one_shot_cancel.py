import pytest
import trio
import trio.testing

from inferd.engine.one_shot_cancel import OneShotCancel


async def come_at(cue: OneShotCancel, at_s: float):
    await trio.sleep_until(at_s)
    cue.fire()


async def test_a_block_is_cancelled_when_it_fires(autojump_clock, nursery):
    cue = OneShotCancel()
    nursery.start_soon(come_at, cue, 3)
    with cue.until_fired():
        await trio.sleep(1000)
    assert trio.current_time() == 3


async def test_a_block_entered_after_the_event_ends_at_its_first_checkpoint(
    autojump_clock,
):
    cue = OneShotCancel()
    cue.fire()
    begun = []
    for _ in range(2):
        with cue.until_fired():
            begun.append(trio.current_time())
            await trio.sleep(1000)
    assert begun == [0, 0]


async def test_a_block_that_ended_before_is_left_alone(autojump_clock, nursery):
    cue = OneShotCancel()
    nursery.start_soon(come_at, cue, 3)
    with cue.until_fired():
        await trio.sleep(1)
    await trio.sleep(5)
    assert trio.current_time() == 6


async def test_a_cancellation_from_outside_goes_on_outside(autojump_clock):
    cue = OneShotCancel()
    with trio.move_on_after(1) as scope:
        with cue.until_fired():
            await trio.sleep(1000)
        pytest.fail("it went on")
    assert scope.cancelled_caught


async def test_a_failure_inside_is_passed_on():
    cue = OneShotCancel()
    with pytest.raises(ZeroDivisionError), cue.until_fired():
        raise ZeroDivisionError
    cue.fire()
