import math
from contextlib import ExitStack

import pytest
import trio
import trio.testing
from hypothesis import given, settings, strategies as st

from inferd.admission.control import Admission, RequestTraits
from inferd.backend.caller import Caller
from inferd.config.settings import AdmissionSettings
from inferd.errors import DrainingError, QueueFullError
from inferd.server.queue.requests import Permit, RequestQueue
from tests.cases import each_case


def make_turns(*, max_active: int = 1, max_queued: int = 10):
    gate = Admission(max_active=max_active, max_queued=max_queued)
    return gate, RequestQueue(gate)


async def hold(queue: RequestQueue, order: list[str], name: str, hold_s: float = 1):
    with queue.admitted(RequestTraits()) as permit:
        with trio.fail_after(1000):
            await permit.wait()
        order.append(name)
        await trio.sleep(hold_s)


async def test_waiting_requests_run_in_order_of_arrival(autojump_clock):
    _, queue = make_turns()
    order: list[str] = []
    async with trio.open_nursery() as nursery:
        for name in "abcd":
            nursery.start_soon(hold, queue, order, name)
            await trio.testing.wait_all_tasks_blocked()
    assert order == list("abcd")
    assert trio.current_time() == 4


@each_case(("n_slots", "together"), [([0, 2, 3], 2), ([0], 4), ([], 4), ([9], 4)])
async def test_no_more_run_than_every_backend_has_slots(
    n_slots, together, autojump_clock
):
    gate, queue = make_turns(max_active=4)
    queue.cap_active(n_slots)
    async with trio.open_nursery() as nursery:
        for name in "abcdef":
            nursery.start_soon(hold, queue, [], name)
        await trio.testing.wait_all_tasks_blocked()
        assert (gate.active, gate.waiting) == (together, 6 - together)


async def test_as_many_requests_run_at_once_as_allowed(autojump_clock):
    _, queue = make_turns(max_active=2)
    order: list[str] = []
    async with trio.open_nursery() as nursery:
        for name in "abcd":
            nursery.start_soon(hold, queue, order, name)
    assert trio.current_time() == 2


async def test_a_request_over_the_queue_limit_is_refused_and_changes_nothing():
    gate, queue = make_turns(max_active=1, max_queued=0)
    with queue.admitted(RequestTraits()):
        with pytest.raises(QueueFullError), queue.admitted(RequestTraits()):
            pytest.fail("let in")
        assert gate.active == 1
    assert gate.active == 0


async def test_the_next_request_runs_whatever_ends_the_one_before(autojump_clock):
    gate, queue = make_turns()
    order: list[str] = []
    async with trio.open_nursery() as nursery:
        with pytest.raises(ZeroDivisionError), queue.admitted(RequestTraits()):
            nursery.start_soon(hold, queue, order, "next")
            await trio.testing.wait_all_tasks_blocked()
            assert gate.waiting == 1
            raise ZeroDivisionError
    assert order == ["next"]


async def test_leaving_the_queue_grants_no_permit(autojump_clock):
    gate, queue = make_turns()
    with queue.admitted(RequestTraits()):
        with trio.move_on_after(1), queue.admitted(RequestTraits()) as second:
            await second.wait()
        assert (gate.active, gate.waiting) == (1, 0)


async def test_a_closed_queue_refuses_new_requests_and_keeps_present_ones(
    autojump_clock,
):
    gate, queue = make_turns()
    with queue.admitted(RequestTraits()) as first:
        queue.close()
        with pytest.raises(DrainingError), queue.admitted(RequestTraits()):
            pytest.fail("let in")
        await first.wait()
        assert gate.active == 1


async def test_only_waiting_requests_are_rejected(autojump_clock):
    _, queue = make_turns()
    with (
        queue.admitted(RequestTraits()) as first,
        queue.admitted(RequestTraits()) as second,
    ):
        queue.reject_waiting()
        await first.wait()
        with pytest.raises(DrainingError):
            await second.wait()


async def test_a_rejected_request_does_not_run_when_a_permit_is_free(autojump_clock):
    _, queue = make_turns()
    with queue.admitted(RequestTraits()):
        waiting = queue.admitted(RequestTraits())
        second = waiting.__enter__()
        queue.reject_waiting()
    with pytest.raises(DrainingError):
        await second.wait()
    waiting.__exit__(None, None, None)


@pytest.mark.parametrize("is_lost", [False, True])
async def test_a_block_until_the_permit_is_cancelled_when_it_is_granted(
    is_lost, autojump_clock, nursery
):
    _, queue = make_turns()

    async def turn_away():
        await trio.sleep(1)
        queue.reject_waiting()

    nursery.start_soon(hold, queue, [], "first", 2)
    await trio.testing.wait_all_tasks_blocked()
    if is_lost:
        nursery.start_soon(turn_away)
    with queue.admitted(RequestTraits()) as permit:
        with permit.until_granted():
            await trio.sleep(1000)
        assert trio.current_time() == (1 if is_lost else 2)


# --- positions --------------------------------------------------------------------------


async def note(permit: Permit, told: list[tuple[float, int]]):
    async for position in permit.positions():
        told.append((trio.current_time(), position))  # noqa: PERF401  # as they come


async def watch(queue: RequestQueue, told: list[tuple[float, int]], hold_s: float = 1):
    with queue.admitted(RequestTraits(), wants_position=True) as permit:
        await note(permit, told)
        await permit.wait()
        await trio.sleep(hold_s)


async def test_each_position_is_reported_once_as_a_request_moves_up(autojump_clock):
    _, queue = make_turns()
    told: list[tuple[float, int]] = []
    async with trio.open_nursery() as nursery:
        for name in "abc":
            nursery.start_soon(hold, queue, [], name)
            await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(watch, queue, told)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(hold, queue, [], "behind")
    assert told == [(0, 3), (1, 2), (2, 1)]


async def test_a_request_that_runs_at_once_gets_no_position(autojump_clock):
    _, queue = make_turns()
    told: list[tuple[float, int]] = []
    await watch(queue, told)
    assert told == []


async def test_a_position_moves_up_when_a_request_ahead_leaves_the_queue(
    autojump_clock,
):
    _, queue = make_turns()
    told: list[tuple[float, int]] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(hold, queue, [], "runs", 9)
        await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(2), queue.admitted(RequestTraits()) as impatient:
            nursery.start_soon(watch, queue, told)
            await impatient.wait()
    assert told == [(0, 2), (2, 1)]


async def test_a_position_moves_down_when_the_same_user_sends_an_urgent_request(
    autojump_clock,
):
    _, queue = make_turns()
    told: list[tuple[float, int]] = []
    with queue.admitted(RequestTraits(Caller(3))):
        with queue.admitted(RequestTraits(Caller(1)), wants_position=True) as permit:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(note, permit, told)
                await trio.testing.wait_all_tasks_blocked()
                with (
                    queue.admitted(RequestTraits(Caller(2), priority=9)),
                    queue.admitted(RequestTraits(Caller(1))),
                ):
                    await trio.testing.wait_all_tasks_blocked()
                    assert [place for _, place in told] == [1]
                with queue.admitted(RequestTraits(Caller(1), priority=1)) as urgent:
                    await trio.testing.wait_all_tasks_blocked()
                    assert queue.order() == [urgent, permit]
                await trio.testing.wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()
    assert [place for _, place in told] == [1, 2, 1]


async def test_a_rejected_request_gets_no_more_positions(autojump_clock):
    _, queue = make_turns()
    with (
        queue.admitted(RequestTraits()),
        queue.admitted(RequestTraits(), wants_position=True) as permit,
    ):
        queue.reject_waiting()
        told: list[tuple[float, int]] = []
        await note(permit, told)
        assert told == []
        with pytest.raises(DrainingError):
            await permit.wait()


async def test_running_and_waiting_requests_are_counted():
    _, queue = make_turns(max_active=1)
    assert (queue.count_active(), queue.count_waiting()) == (0, 0)
    with (
        queue.admitted(RequestTraits()),
        queue.admitted(RequestTraits()),
        queue.admitted(RequestTraits()),
    ):
        assert (queue.count_active(), queue.count_waiting()) == (1, 2)
    assert (queue.count_active(), queue.count_waiting()) == (0, 0)


async def test_each_permit_goes_to_its_user_s_most_urgent_request(
    autojump_clock,
):
    _, queue = make_turns()
    with queue.admitted(RequestTraits(Caller(3))), ExitStack() as stack:

        def come(uid: int, priority: int) -> Permit:
            permit: Permit = stack.enter_context(
                queue.admitted(RequestTraits(Caller(uid), priority=priority))
            )
            return permit

        low, other, high = come(1, -1), come(2, 0), come(1, 5)
        assert queue.order() == [high, other, low]


@pytest.mark.slow
@settings(max_examples=100)
@given(
    visits=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), max_size=12),
    max_active=st.integers(1, 3),
)
def test_positions_end_with_a_permit(visits, max_active):
    _, queue = make_turns(max_active=max_active, max_queued=99)
    told: list[list[tuple[float, int]]] = [[] for _ in visits]

    async def come(arrives_s: int, stays_s: int, told: list[tuple[float, int]]):
        await trio.sleep(arrives_s)
        await watch(queue, told, stays_s)

    async def main():
        async with trio.open_nursery() as nursery:
            for (arrives_s, stays_s), places in zip(visits, told, strict=True):
                nursery.start_soon(come, arrives_s, stays_s, places)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    for places in told:
        numbers = [place for _, place in places]
        assert numbers == sorted(set(numbers), reverse=True)
        assert 0 not in numbers


# --- every way to come and go -----------------------------------------------------------


@pytest.mark.slow
@given(
    visits=st.lists(
        st.tuples(
            st.integers(0, 20),  # when it comes
            st.integers(0, 5),  # how long it stays
            st.sampled_from([0, 1, 2, 5, math.inf]),  # when it loses patience
        ),
        max_size=20,
    ),
    max_active=st.integers(1, 3),
    max_queued=st.integers(0, 4),
)
def test_permits_are_held_and_returned_in_any_order_of_events(
    visits, max_active, max_queued
):
    gate, queue = make_turns(max_active=max_active, max_queued=max_queued)
    inside: list[int] = []

    async def visit(arrives_s: int, stays_s: int, patience_s: float):
        await trio.sleep(arrives_s)
        try:
            with (
                trio.move_on_after(patience_s),
                queue.admitted(RequestTraits()) as permit,
            ):
                await permit.wait()
                inside.append(stays_s)
                assert len(inside) <= max_active
                try:
                    await trio.sleep(stays_s)
                finally:
                    inside.remove(stays_s)
        except QueueFullError:
            assert (gate.active, gate.waiting) == (max_active, max_queued)

    async def main():
        with trio.fail_after(1000):
            async with trio.open_nursery() as nursery:
                for each in visits:
                    nursery.start_soon(visit, *each)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert (gate.active, gate.waiting) == (0, 0)


# --- permits that are taken back --------------------------------------------------------


class Clockwork:
    """A job that needs so many seconds of a permit, and stops at a whole second."""

    def __init__(self, needs_s: float) -> None:
        self.left_s = needs_s
        self.stints: list[list[float]] = []
        self.on_paused = None
        self.go = trio.Event()

    def pause(self, on_paused) -> None:
        self.on_paused = on_paused

    def resume(self) -> None:
        self.go.set()

    def report_queue_position(self, position: int) -> None:
        pass

    async def run(self) -> None:
        self.stints.append([trio.current_time()])
        while self.left_s > 0:
            await trio.sleep(1)
            self.left_s -= 1
            if self.on_paused is not None and self.left_s > 0:
                told, self.on_paused, self.go = self.on_paused, None, trio.Event()
                self.stints[-1].append(trio.current_time())
                told()
                await self.go.wait()
                self.stints.append([trio.current_time()])
        self.stints[-1].append(trio.current_time())


async def work(queue: RequestQueue, uid: int, job: Clockwork):
    with queue.admitted(RequestTraits(Caller(uid))) as permit:
        await permit.wait()
        permit.set_job(job)
        await job.run()


async def worked(queue: RequestQueue, *jobs: tuple[int, Clockwork]) -> None:
    async with trio.open_nursery() as clock:
        clock.start_soon(queue.run)
        async with trio.open_nursery() as nursery:
            for uid, job in jobs:
                nursery.start_soon(work, queue, uid, job)
                await trio.testing.wait_all_tasks_blocked()
        clock.cancel_scope.cancel()


def turns_of(max_active: int, quantum_s: float = 1.5) -> RequestQueue:
    gate = Admission(max_active=max_active, max_queued=99, quantum_s=quantum_s)
    return RequestQueue(gate)


async def test_two_users_alternate_by_quantum(autojump_clock):
    queue, one, other = turns_of(1), Clockwork(5), Clockwork(3)
    await worked(queue, (1, one), (2, other))
    assert one.stints == [[0, 2], [4, 6], [7, 8]]
    assert other.stints == [[2, 4], [6, 7]]
    assert queue._admission.n_pauses == 3
    assert (queue.count_active(), queue.count_paused()) == (0, 0)


async def test_one_user_alone_is_never_paused(autojump_clock):
    queue, jobs = turns_of(1), [Clockwork(9) for _ in range(3)]
    await worked(queue, *((1, job) for job in jobs))
    assert [len(job.stints) for job in jobs] == [1, 1, 1]
    assert queue._admission.n_pauses == 0


async def test_the_newest_request_of_a_flooding_user_is_evicted_for_another_user(
    autojump_clock,
):
    queue, hogs, other = turns_of(3), [Clockwork(9) for _ in range(3)], Clockwork(4)
    await worked(queue, *((1, job) for job in hogs), (2, other))
    assert [job.stints for job in hogs] == [[[0, 9]], [[0, 9]], [[0, 2], [6, 13]]]
    assert other.stints == [[2, 6]]


async def test_a_paused_request_may_end(autojump_clock, nursery):
    queue, job = turns_of(1), Clockwork(99)
    nursery.start_soon(queue.run)

    async def leave() -> None:
        with trio.move_on_after(3):
            await work(queue, 1, job)
        assert queue.count_paused() == 0

    nursery.start_soon(leave)
    await trio.testing.wait_all_tasks_blocked()
    await work(queue, 2, Clockwork(6))
    assert job.stints == [[0, 2]]
    nursery.cancel_scope.cancel()


async def test_a_changed_quantum_applies_from_the_next_change_of_the_queue(
    autojump_clock,
):
    queue, one, other = turns_of(1, quantum_s=1000), Clockwork(50), Clockwork(1)
    queue.reconfigure(AdmissionSettings(quantum_s=4.5))
    await worked(queue, (1, one), (2, other))
    assert other.stints == [[5, 6]]
