import trio
import trio.testing

from inferd.engine.channel.run_control import RunControl
from inferd.ipc.worker import Pause, Resume, ToWorker


class Posted:
    """A worker that is told things."""

    def __init__(self) -> None:
        self.messages: list[ToWorker] = []

    def send(self, message: ToWorker) -> None:
        self.messages.append(message)


def test_a_running_job_is_paused_once_its_worker_reports_it():
    hold, worker, told = RunControl(7), Posted(), list[str]()
    hold.began(worker)
    hold.pause(lambda: told.append("paused"))
    assert (worker.messages, told) == ([Pause(ticket=7)], [])
    hold.paused()
    hold.paused()
    assert told == ["paused"]
    hold.resume()
    assert worker.messages[1:] == [Resume(ticket=7)]


async def test_a_job_that_does_not_run_yet_is_paused_at_once_and_starts_later(nursery):
    hold, worker, told = RunControl(7), Posted(), list[str]()
    hold.pause(lambda: told.append("paused"))
    assert told == ["paused"]

    async def begin() -> None:
        await hold.wait_resumed()
        hold.began(worker)
        told.append("began")

    nursery.start_soon(begin)
    await trio.testing.wait_all_tasks_blocked()
    assert told == ["paused"]
    hold.resume()
    await trio.testing.wait_all_tasks_blocked()
    assert (told, worker.messages) == (["paused", "began"], [])


def test_a_job_that_ended_is_sent_nothing():
    hold, worker = RunControl(7), Posted()
    hold.began(worker)
    hold.ended()
    hold.pause(lambda: None)
    hold.resume()
    assert worker.messages == []


def test_a_need_for_audio_is_passed_to_the_callback():
    told: list[int] = []
    hold = RunControl(7)
    hold.audio_needed(5)
    hold.on_audio_needed = told.append
    hold.audio_needed(6)
    assert told == [6]


async def test_a_job_that_may_run_does_not_wait():
    with trio.fail_after(90):
        await RunControl(7).wait_resumed()
