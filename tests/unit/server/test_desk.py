import pytest
import trio
import trio.testing
from hypothesis import given, settings, strategies as st

from inferd.server.desk import Desk
from inferd.server.turns import Turn


async def read(desk: Desk, turn: Turn, order: list[Turn], seen: list[int]):
    async with desk.seat("chat", turn, lambda: order):
        seen.append(turn.ticket)
        await trio.sleep(1)


async def test_one_is_read_at_a_time_in_the_order_of_turns(autojump_clock, nursery):
    desk, seen = Desk(), list[int]()
    turns = [Turn(n) for n in range(4)]
    order = [turns[3], turns[1], turns[2]]
    for turn in turns:
        nursery.start_soon(read, desk, turn, order, seen)
        await trio.testing.wait_all_tasks_blocked()
    await trio.sleep(4.5)
    assert seen == [0, 3, 1, 2]
    assert desk._waiting == {}


async def test_one_who_holds_a_permit_is_read_before_those_who_wait(
    autojump_clock, nursery
):
    desk, seen = Desk(), list[int]()
    turns = [Turn(n) for n in range(3)]
    for turn in turns:
        nursery.start_soon(read, desk, turn, [turns[1]], seen)
        await trio.testing.wait_all_tasks_blocked()
    await trio.sleep(3.5)
    assert seen == [0, 2, 1]


async def test_users_who_hold_permits_are_read_in_turns(autojump_clock, nursery):
    desk, seen = Desk(), list[int]()
    for turn in [*(Turn(n, user=1) for n in range(5)), Turn(5, user=2)]:
        nursery.start_soon(read, desk, turn, [], seen)
        await trio.testing.wait_all_tasks_blocked()
    await trio.sleep(6.5)
    assert seen == [0, 1, 5, 2, 3, 4]


async def test_each_backend_has_a_seat(autojump_clock):
    desk = Desk()
    with trio.fail_after(1):
        async with desk.seat("chat", Turn(1), list):
            async with desk.seat("embed", Turn(2), list):
                pass
    assert desk._waiting == {}


async def test_a_failure_passes_the_seat_on(autojump_clock, nursery):
    desk, seen = Desk(), list[int]()
    with pytest.raises(ZeroDivisionError):
        async with desk.seat("chat", Turn(1), list):
            nursery.start_soon(read, desk, Turn(2), [], seen)
            await trio.testing.wait_all_tasks_blocked()
            raise ZeroDivisionError
    await trio.testing.wait_all_tasks_blocked()
    assert seen == [2]


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=8))
def test_whoever_leaves_when_the_seat_is_not_lost(visits):
    """Each comes and gives up at its time, some at the moment when they are next."""

    async def main() -> None:
        desk, seen = Desk(), list[int]()

        async def visit(n: int, come_s: int, stay_s: int) -> None:
            await trio.sleep(come_s)
            with trio.move_on_after(stay_s):
                await read(desk, Turn(n), [], seen)

        async with trio.open_nursery() as nursery:
            for n, (come_s, stay_s) in enumerate(visits):
                nursery.start_soon(visit, n, come_s, stay_s)
        assert desk._waiting == {}

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
