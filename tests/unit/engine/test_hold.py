import trio
import trio.testing

from inferd.engine.hold import Hold
from inferd.ipc import Pause, Resume, ToWorker


class Posted:
    """A worker that is told things."""

    def __init__(self) -> None:
        self.messages: list[ToWorker] = []

    def post(self, message: ToWorker) -> None:
        self.messages.append(message)


def test_what_runs_stands_still_once_its_worker_says_so():
    hold, worker, told = Hold(7), Posted(), list[str]()
    hold.began(worker)
    hold.pause(lambda: told.append("paused"))
    assert (worker.messages, told) == ([Pause(ticket=7)], [])
    hold.has_paused()
    hold.has_paused()
    assert told == ["paused"]
    hold.resume()
    assert worker.messages[1:] == [Resume(ticket=7)]


async def test_what_does_not_run_yet_stands_still_at_once_and_begins_later(nursery):
    hold, worker, told = Hold(7), Posted(), list[str]()
    hold.pause(lambda: told.append("paused"))
    assert told == ["paused"]

    async def begin() -> None:
        await hold.until_wanted()
        hold.began(worker)
        told.append("began")

    nursery.start_soon(begin)
    await trio.testing.wait_all_tasks_blocked()
    assert told == ["paused"]
    hold.resume()
    await trio.testing.wait_all_tasks_blocked()
    assert (told, worker.messages) == (["paused", "began"], [])


def test_what_has_ended_is_told_nothing():
    hold, worker = Hold(7), Posted()
    hold.began(worker)
    hold.ended()
    hold.pause(lambda: None)
    hold.resume()
    assert worker.messages == []


def test_silence_is_told_to_whoever_wants_to_know():
    told: list[int] = []
    hold = Hold(7)
    hold.is_silent(5)
    hold.on_silent = told.append
    hold.is_silent(6)
    assert told == [6]


async def test_who_may_run_does_not_wait():
    with trio.fail_after(1):
        await Hold(7).until_wanted()
