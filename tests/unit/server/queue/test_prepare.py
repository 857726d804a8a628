import pytest
import trio
import trio.testing
from hypothesis import given, settings, strategies as st

from inferd.backend.caller import Caller
from inferd.server.queue.prepare import PrepareLocks
from inferd.server.queue.requests import Permit


async def read(
    prepare_locks: PrepareLocks, permit: Permit, order: list[Permit], seen: list[int]
):
    async with prepare_locks.acquire("chat", permit, lambda: order):
        seen.append(permit.ticket)
        await trio.sleep(1)


async def test_one_request_is_prepared_at_a_time_in_queue_order(
    autojump_clock, nursery
):
    prepare_locks, seen = PrepareLocks(), list[int]()
    queue = [Permit(n) for n in range(4)]
    order = [queue[3], queue[1], queue[2]]
    for permit in queue:
        nursery.start_soon(read, prepare_locks, permit, order, seen)
        await trio.testing.wait_all_tasks_blocked()
    await trio.sleep(4.5)
    assert seen == [0, 3, 1, 2]
    assert prepare_locks._waiting == {}


async def test_a_request_with_a_permit_is_prepared_before_waiting_ones(
    autojump_clock, nursery
):
    prepare_locks, seen = PrepareLocks(), list[int]()
    queue = [Permit(n) for n in range(3)]
    for permit in queue:
        nursery.start_soon(read, prepare_locks, permit, [queue[1]], seen)
        await trio.testing.wait_all_tasks_blocked()
    await trio.sleep(3.5)
    assert seen == [0, 2, 1]


async def test_users_with_permits_alternate(autojump_clock, nursery):
    prepare_locks, seen = PrepareLocks(), list[int]()
    for permit in [*(Permit(n, Caller(1)) for n in range(5)), Permit(5, Caller(2))]:
        nursery.start_soon(read, prepare_locks, permit, [], seen)
        await trio.testing.wait_all_tasks_blocked()
    await trio.sleep(6.5)
    assert seen == [0, 1, 5, 2, 3, 4]


async def test_each_backend_has_its_own_lock(autojump_clock):
    prepare_locks = PrepareLocks()
    with trio.fail_after(1):
        async with prepare_locks.acquire("chat", Permit(1), list):
            async with prepare_locks.acquire("embed", Permit(2), list):
                pass
    assert prepare_locks._waiting == {}


async def test_a_failure_passes_the_lock_on(autojump_clock, nursery):
    prepare_locks, seen = PrepareLocks(), list[int]()
    with pytest.raises(ZeroDivisionError):
        async with prepare_locks.acquire("chat", Permit(1), list):
            nursery.start_soon(read, prepare_locks, Permit(2), [], seen)
            await trio.testing.wait_all_tasks_blocked()
            raise ZeroDivisionError
    await trio.testing.wait_all_tasks_blocked()
    assert seen == [2]


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=8))
def test_the_lock_is_not_lost_by_any_cancel(visits):
    """Each comes and gives up at its time, some at the moment when they are next."""

    async def main() -> None:
        prepare_locks, seen = PrepareLocks(), list[int]()

        async def visit(n: int, come_s: int, stay_s: int) -> None:
            await trio.sleep(come_s)
            with trio.move_on_after(stay_s):
                await read(prepare_locks, Permit(n), [], seen)

        async with trio.open_nursery() as nursery:
            for n, (come_s, stay_s) in enumerate(visits):
                nursery.start_soon(visit, n, come_s, stay_s)
        assert prepare_locks._waiting == {}

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
