import math
from contextlib import ExitStack

import pytest
import trio
import trio.testing
from hypothesis import given, settings, strategies as st

from inferd.admission.gate import Admission, Claim
from inferd.config import AdmissionSettings
from inferd.errors import DrainingError, QueueFullError
from inferd.server.turns import Turn, Turns


def make_turns(*, max_active: int = 1, max_queued: int = 10):
    gate = Admission(max_active=max_active, max_queued=max_queued)
    return gate, Turns(gate)


async def hold(turns: Turns, order: list[str], name: str, hold_s: float = 1):
    with turns.admitted(Claim()) as turn:
        with trio.fail_after(1000):
            await turn.wait()
        order.append(name)
        await trio.sleep(hold_s)


async def test_those_who_wait_run_in_the_order_they_came(autojump_clock):
    _, turns = make_turns()
    order: list[str] = []
    async with trio.open_nursery() as nursery:
        for name in "abcd":
            nursery.start_soon(hold, turns, order, name)
            await trio.testing.wait_all_tasks_blocked()
    assert order == list("abcd")
    assert trio.current_time() == 4


@pytest.mark.parametrize(
    ("n_slots", "together"), [([0, 2, 3], 2), ([0], 4), ([], 4), ([9], 4)]
)
async def test_no_more_run_than_every_backend_has_slots(
    n_slots, together, autojump_clock
):
    gate, turns = make_turns(max_active=4)
    turns.bound(n_slots)
    async with trio.open_nursery() as nursery:
        for name in "abcdef":
            nursery.start_soon(hold, turns, [], name)
        await trio.testing.wait_all_tasks_blocked()
        assert (gate.active, gate.waiting) == (together, 6 - together)


async def test_as_many_run_at_once_as_may(autojump_clock):
    _, turns = make_turns(max_active=2)
    order: list[str] = []
    async with trio.open_nursery() as nursery:
        for name in "abcd":
            nursery.start_soon(hold, turns, order, name)
    assert trio.current_time() == 2


async def test_one_too_many_is_refused_and_changes_nothing():
    gate, turns = make_turns(max_active=1, max_queued=0)
    with turns.admitted(Claim()):
        with pytest.raises(QueueFullError), turns.admitted(Claim()):
            pytest.fail("let in")
        assert gate.active == 1
    assert gate.active == 0


async def test_whatever_ends_a_request_its_successor_runs(autojump_clock):
    gate, turns = make_turns()
    order: list[str] = []
    async with trio.open_nursery() as nursery:
        with pytest.raises(ZeroDivisionError), turns.admitted(Claim()):
            nursery.start_soon(hold, turns, order, "next")
            await trio.testing.wait_all_tasks_blocked()
            assert gate.waiting == 1
            raise ZeroDivisionError
    assert order == ["next"]


async def test_leaving_the_queue_passes_the_turn_on_to_nobody(autojump_clock):
    gate, turns = make_turns()
    with turns.admitted(Claim()):
        with trio.move_on_after(1), turns.admitted(Claim()) as second:
            await second.wait()
        assert (gate.active, gate.waiting) == (1, 0)


async def test_a_closed_gate_turns_away_the_next_and_keeps_those_inside(
    autojump_clock,
):
    gate, turns = make_turns()
    with turns.admitted(Claim()) as first:
        turns.close()
        with pytest.raises(DrainingError), turns.admitted(Claim()):
            pytest.fail("let in")
        await first.wait()
        assert gate.active == 1


async def test_turning_away_reaches_those_who_wait_alone(autojump_clock):
    _, turns = make_turns()
    with turns.admitted(Claim()) as first, turns.admitted(Claim()) as second:
        turns.turn_away()
        await first.wait()
        with pytest.raises(DrainingError):
            await second.wait()


async def test_one_turned_away_does_not_run_when_its_turn_comes(autojump_clock):
    _, turns = make_turns()
    with turns.admitted(Claim()):
        waiting = turns.admitted(Claim())
        second = waiting.__enter__()
        turns.turn_away()
    with pytest.raises(DrainingError):
        await second.wait()
    waiting.__exit__(None, None, None)


@pytest.mark.parametrize("is_lost", [False, True])
async def test_what_is_done_until_the_turn_comes_is_cut_short_then(
    is_lost, autojump_clock, nursery
):
    _, turns = make_turns()

    async def turn_away():
        await trio.sleep(1)
        turns.turn_away()

    nursery.start_soon(hold, turns, [], "first", 2)
    await trio.testing.wait_all_tasks_blocked()
    if is_lost:
        nursery.start_soon(turn_away)
    with turns.admitted(Claim()) as turn:
        with turn.until_come():
            await trio.sleep(1000)
        assert trio.current_time() == (1 if is_lost else 2)


# --- positions --------------------------------------------------------------------------


async def note(turn: Turn, told: list[tuple[float, int]]):
    async for position in turn.positions():
        told.append((trio.current_time(), position))  # noqa: PERF401  # as they come


async def watch(turns: Turns, told: list[tuple[float, int]], hold_s: float = 1):
    with turns.admitted(Claim(), is_watched=True) as turn:
        await note(turn, told)
        await turn.wait()
        await trio.sleep(hold_s)


async def test_one_who_watches_is_told_each_place_once_as_it_moves_up(autojump_clock):
    _, turns = make_turns()
    told: list[tuple[float, int]] = []
    async with trio.open_nursery() as nursery:
        for name in "abc":
            nursery.start_soon(hold, turns, [], name)
            await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(watch, turns, told)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(hold, turns, [], "behind")
    assert told == [(0, 3), (1, 2), (2, 1)]


async def test_one_who_runs_at_once_is_told_no_place(autojump_clock):
    _, turns = make_turns()
    told: list[tuple[float, int]] = []
    await watch(turns, told)
    assert told == []


async def test_a_place_moves_up_when_one_ahead_leaves_the_queue(autojump_clock):
    _, turns = make_turns()
    told: list[tuple[float, int]] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(hold, turns, [], "runs", 9)
        await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(2), turns.admitted(Claim()) as impatient:
            nursery.start_soon(watch, turns, told)
            await impatient.wait()
    assert told == [(0, 2), (2, 1)]


async def test_a_place_moves_down_when_the_same_user_sends_what_is_urgent(
    autojump_clock,
):
    _, turns = make_turns()
    told: list[tuple[float, int]] = []
    with turns.admitted(Claim(uid=3)):
        with turns.admitted(Claim(uid=1), is_watched=True) as turn:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(note, turn, told)
                await trio.testing.wait_all_tasks_blocked()
                with (
                    turns.admitted(Claim(uid=2, priority=9)),
                    turns.admitted(Claim(uid=1)),
                ):
                    await trio.testing.wait_all_tasks_blocked()
                    assert [place for _, place in told] == [1]
                with turns.admitted(Claim(uid=1, priority=1)) as urgent:
                    await trio.testing.wait_all_tasks_blocked()
                    assert turns.order() == [urgent, turn]
                await trio.testing.wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()
    assert [place for _, place in told] == [1, 2, 1]


async def test_one_turned_away_is_told_no_more_places(autojump_clock):
    _, turns = make_turns()
    with turns.admitted(Claim()), turns.admitted(Claim(), is_watched=True) as turn:
        turns.turn_away()
        told: list[tuple[float, int]] = []
        await note(turn, told)
        assert told == []
        with pytest.raises(DrainingError):
            await turn.wait()


async def test_those_who_run_and_wait_are_counted():
    _, turns = make_turns(max_active=1)
    assert (turns.count_active(), turns.count_waiting()) == (0, 0)
    with turns.admitted(Claim()), turns.admitted(Claim()), turns.admitted(Claim()):
        assert (turns.count_active(), turns.count_waiting()) == (1, 2)
    assert (turns.count_active(), turns.count_waiting()) == (0, 0)


async def test_each_turn_goes_to_the_one_of_its_user_that_is_most_urgent(
    autojump_clock,
):
    _, turns = make_turns()
    with turns.admitted(Claim(uid=3)), ExitStack() as stack:

        def come(uid: int, priority: int) -> Turn:
            turn: Turn = stack.enter_context(
                turns.admitted(Claim(uid=uid, priority=priority))
            )
            return turn

        low, other, high = come(1, -1), come(2, 0), come(1, 5)
        assert turns.order() == [high, other, low]


@pytest.mark.slow
@settings(max_examples=100)
@given(
    visits=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), max_size=12),
    max_active=st.integers(1, 3),
)
def test_whoever_watches_sees_places_that_end_in_a_turn(visits, max_active):
    _, turns = make_turns(max_active=max_active, max_queued=99)
    told: list[list[tuple[float, int]]] = [[] for _ in visits]

    async def come(arrives_s: int, stays_s: int, told: list[tuple[float, int]]):
        await trio.sleep(arrives_s)
        await watch(turns, told, stays_s)

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
def test_whoever_comes_and_goes_permits_are_kept_and_given_back(
    visits, max_active, max_queued
):
    gate, turns = make_turns(max_active=max_active, max_queued=max_queued)
    inside: list[int] = []

    async def visit(arrives_s: int, stays_s: int, patience_s: float):
        await trio.sleep(arrives_s)
        try:
            with trio.move_on_after(patience_s), turns.admitted(Claim()) as turn:
                await turn.wait()
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

    def tell(self, position: int) -> None:
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


async def work(turns: Turns, uid: int, job: Clockwork):
    with turns.admitted(Claim(uid=uid)) as turn:
        await turn.wait()
        turn.runs(job)
        await job.run()


async def worked(turns: Turns, *jobs: tuple[int, Clockwork]) -> None:
    async with trio.open_nursery() as clock:
        clock.start_soon(turns.run)
        async with trio.open_nursery() as nursery:
            for uid, job in jobs:
                nursery.start_soon(work, turns, uid, job)
                await trio.testing.wait_all_tasks_blocked()
        clock.cancel_scope.cancel()


def turns_of(max_active: int, quantum_s: float = 1.5) -> Turns:
    gate = Admission(max_active=max_active, max_queued=99, quantum_s=quantum_s)
    return Turns(gate)


async def test_two_users_take_turns_of_a_quantum(autojump_clock):
    turns, one, other = turns_of(1), Clockwork(5), Clockwork(3)
    await worked(turns, (1, one), (2, other))
    assert one.stints == [[0, 2], [4, 6], [7, 8]]
    assert other.stints == [[2, 4], [6, 7]]
    assert turns._gate.n_pauses == 3
    assert (turns.count_active(), turns.count_paused()) == (0, 0)


async def test_one_user_alone_is_never_paused(autojump_clock):
    turns, jobs = turns_of(1), [Clockwork(9) for _ in range(3)]
    await worked(turns, *((1, job) for job in jobs))
    assert [len(job.stints) for job in jobs] == [1, 1, 1]
    assert turns._gate.n_pauses == 0


async def test_the_hogs_newest_request_makes_room_for_another_user(autojump_clock):
    turns, hogs, other = turns_of(3), [Clockwork(9) for _ in range(3)], Clockwork(4)
    await worked(turns, *((1, job) for job in hogs), (2, other))
    assert [job.stints for job in hogs] == [[[0, 9]], [[0, 9]], [[0, 2], [6, 13]]]
    assert other.stints == [[2, 6]]


async def test_who_is_paused_may_leave(autojump_clock, nursery):
    turns, job = turns_of(1), Clockwork(99)
    nursery.start_soon(turns.run)

    async def leave() -> None:
        with trio.move_on_after(3):
            await work(turns, 1, job)
        assert turns.count_paused() == 0

    nursery.start_soon(leave)
    await trio.testing.wait_all_tasks_blocked()
    await work(turns, 2, Clockwork(6))
    assert job.stints == [[0, 2]]
    nursery.cancel_scope.cancel()


async def test_another_quantum_holds_from_the_next_change_on(autojump_clock):
    turns, one, other = turns_of(1, quantum_s=1000), Clockwork(50), Clockwork(1)
    turns.resize(AdmissionSettings(quantum_s=4.5))
    await worked(turns, (1, one), (2, other))
    assert other.stints == [[5, 6]]
