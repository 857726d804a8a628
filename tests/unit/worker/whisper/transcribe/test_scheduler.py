import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from inferd.ipc.worker import Failed, Transcribed
from inferd.worker.backend import RefusedError
from inferd.worker.whisper.transcribe.inference import InferenceError
from inferd.worker.whisper.transcribe.scheduler import JobThread, Scheduler

SOON_S = 5.0


def ring(*turns: JobThread) -> Scheduler:
    made = Scheduler()
    for turn in turns:
        made.add(turn)
    return made


def in_turns(n: int, order: list[int]) -> Callable[[JobThread], None]:
    """Take part so many times, each noted."""

    def perform(turn: JobThread) -> None:
        for _ in range(n):
            order.append(turn.ticket)
            turn.emit(Transcribed(ticket=turn.ticket))
            turn.yield_control()

    return perform


def test_each_has_its_turn_until_all_are_over():
    order: list[int] = []
    performers = ring(
        *(JobThread(number, in_turns(number, order)) for number in (1, 2, 3))
    )
    while performers.is_busy:
        performers.step(SOON_S)
    assert order == [1, 2, 3, 2, 3, 3]
    assert len(performers) == 0


def test_one_computes_at_a_time():
    computing: list[int] = []
    most = 0

    def perform(turn: JobThread) -> None:
        nonlocal most
        for _ in range(20):
            computing.append(turn.ticket)
            most = max(most, len(computing))
            computing.pop()
            turn.yield_control()

    performers = ring(*(JobThread(number, perform) for number in range(5)))
    while performers.is_busy:
        performers.step(SOON_S)
    assert most == 1


def test_one_that_computes_for_long_is_waited_for_again_and_again():
    go_on = threading.Event()

    def perform(turn: JobThread) -> None:
        turn.heartbeat()
        go_on.wait()
        turn.emit(Transcribed(ticket=1, n_tokens=7))

    performers = ring(JobThread(1, perform), JobThread(2, lambda _: None))
    turn = performers.step(0.01)
    assert turn is not None
    assert performers.step(0.01) is turn
    assert (turn.is_over, turn.made_progress(), turn.made_progress()) == (
        False,
        True,
        False,
    )
    go_on.set()
    assert performers.step(SOON_S) is turn
    assert turn.is_over
    assert turn.outcomes() == [Transcribed(ticket=1, n_tokens=7)]
    assert performers.step(SOON_S) is not None
    assert not performers.is_busy


def test_who_waits_for_something_has_no_turn_before_it_is_there():
    there = False

    def perform(turn: JobThread) -> None:
        turn.yield_control(until=lambda: there)

    performers = ring(JobThread(1, perform))
    performers.step(SOON_S)
    assert not performers.is_busy
    assert performers.step(SOON_S) is None
    there = True
    assert performers.is_busy
    performers.step(SOON_S)
    assert len(performers) == 0


def test_a_job_that_waits_is_dropped_with_its_thread():
    ended: list[str] = []

    def perform(turn: JobThread) -> None:
        try:
            turn.yield_control(until=lambda: False)
        finally:
            ended.append(threading.current_thread().name)

    unbegun = JobThread(10, perform)
    performers = ring(JobThread(9, perform), unbegun)
    performers.step(SOON_S)
    performers.drop(9)
    performers.drop(10)  # it never began
    performers.drop(11)  # there is none
    assert ended == ["job 9"]
    assert unbegun.is_over
    assert "job 9" not in {thread.name for thread in threading.enumerate()}
    assert not performers.is_busy


@pytest.mark.parametrize("is_interrupted", [True, False])
def test_a_job_that_computes_is_dropped_once_it_notices(is_interrupted):
    noticed = threading.Event()

    def perform(turn: JobThread) -> None:
        while not turn.heartbeat():
            pass
        noticed.set()
        turn.yield_control()

    performers = ring(JobThread(1, perform))
    performers.step(0.01)
    if is_interrupted:
        performers.interrupt(1)
        performers.interrupt(2)
        assert noticed.wait(SOON_S)
    performers.drop(1)
    while performers.is_busy:
        assert performers.step(SOON_S) is None
    assert noticed.is_set()
    assert "job 1" not in {thread.name for thread in threading.enumerate()}


def test_a_job_that_is_dropped_as_it_gives_its_turn_back_is_ended():
    reached, go_on = threading.Event(), threading.Event()

    def perform(turn: JobThread) -> None:
        reached.set()
        go_on.wait()
        turn.yield_control()

    turn = JobThread(1, perform)
    performers = ring(turn)
    performers.step(0.0)
    reached.wait()
    turn_wait = turn.wait
    performers._threads.clear()  # as drop does, after the job has looked
    go_on.set()
    assert turn_wait is not None
    performers.step(SOON_S)
    assert turn.is_over
    assert not performers.is_busy


@pytest.mark.parametrize(
    ("error", "reason", "by_request"),
    [
        (RefusedError("sample 3 is not finite"), "sample 3 is not finite", True),
        (InferenceError("whisper.cpp failed (-6)"), "whisper.cpp failed (-6)", False),
        (ValueError("secret"), "transcription failed with ValueError", False),
    ],
)
def test_a_job_that_fails_says_why_and_others_go_on(error, reason, by_request, capfd):
    def perform(turn: JobThread) -> None:
        raise error

    order: list[int] = []
    performers = ring(JobThread(1, perform), JobThread(2, in_turns(1, order)))
    turn = performers.step(SOON_S)
    assert turn is not None
    assert turn.outcomes() == [Failed(ticket=1, reason=reason, by_request=by_request)]
    while performers.is_busy:
        performers.step(SOON_S)
    assert order == [2]


def test_time_counts_while_a_job_has_the_turn(monkeypatch):
    clock = SimpleNamespace(now=100.0)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr("inferd.worker.whisper.transcribe.scheduler.time", clock)
    found: list[int] = []

    def perform(turn: JobThread) -> None:
        for seconds in (2.5, 0.25):
            clock.now += seconds
            found.append(turn.computed_ms)
            turn.yield_control()

    performers = ring(JobThread(1, perform))
    while performers.is_busy:
        performers.step(SOON_S)
        clock.now += 1000
    assert found == [2500, 2750]


# --- rest -------------------------------------------------------------------------------


def test_one_that_is_to_rest_has_no_turn_until_it_is_resumed():
    order: list[int] = []
    performers = ring(*(JobThread(number, in_turns(3, order)) for number in (1, 2)))
    performers.max_parked = 1
    performers.step(SOON_S)
    performers.pause(1)
    assert performers.park() == [1]
    while performers.is_busy:
        performers.step(SOON_S)
    assert order == [1, 2, 2, 2]
    performers.resume(1)
    while performers.is_busy:
        performers.step(SOON_S)
    assert order == [1, 2, 2, 2, 1, 1]


def test_no_more_rest_with_a_state_than_there_is_memory_for():
    order: list[int] = []
    performers = ring(*(JobThread(number, in_turns(2, order)) for number in (1, 2, 3)))
    performers.max_parked = 1
    for _ in range(2):
        performers.step(SOON_S)
    for number in (1, 2, 3):
        performers.pause(number)
    assert sorted(performers.park()) == [1, 3]  # the last has not begun
    assert performers.park() == []
    assert performers.is_busy  # the second goes on
    performers.drop(1)
    assert performers.park() == [2]
    assert not performers.is_busy
    for number in (2, 3):
        performers.drop(number)
    assert len(performers) == 0


def test_one_that_can_do_without_its_state_frees_it_as_it_rests():
    freed: list[str] = []
    may_go_on = False

    def perform(turn: JobThread) -> None:
        turn.yield_control(until=lambda: may_go_on, free=lambda: freed.append("state"))
        turn.emit(Transcribed(ticket=1, n_tokens=1))

    turn = JobThread(1, perform)
    performers = ring(turn)
    performers.step(SOON_S)
    performers.pause(1)
    assert performers.park() == [1]
    assert freed == ["state"]
    may_go_on = True
    assert not performers.is_busy
    performers.resume(1)
    assert performers.step(SOON_S) is turn
    assert turn.outcomes() == [Transcribed(ticket=1, n_tokens=1)]


def test_one_that_computes_rests_once_its_chunk_is_over():
    go_on = threading.Event()

    def perform(turn: JobThread) -> None:
        go_on.wait()
        turn.yield_control()

    performers = ring(JobThread(1, perform))
    performers.max_parked = 1
    performers.step(0.01)
    performers.pause(1)
    assert performers.park() == []
    go_on.set()
    performers.step(SOON_S)
    assert performers.park() == [1]
    performers.drop(1)
