import pytest
import trio

from inferd.engine.pulse import Pulse, no_word
from inferd.ipc import Alive, Embedded, Failed, FromWorker, PromptReady, Scored, Step
from tests.fakes.worker import ended

SILENCE_S = 60.0
BEATS_S = 10.0

GETTING_ON: list[FromWorker] = [
    Step(n_read=512),
    Step(pieces=[(1, b"x")]),
    Step(ended=[ended(2, 1)]),
    Embedded(ticket=1, embeddings=b"[]", dimensions=1, is_last=False),
    Embedded(ticket=2, embeddings=b"[]", dimensions=1),
    Scored(ticket=2, scores=[1.0]),
    Failed(ticket=2, reason="no"),
]
GETTING_NOWHERE: list[FromWorker] = [
    Alive(),
    PromptReady(ticket=9, prompt_tokens=1),
    Failed(ticket=9, reason="its prompt"),
]
ENDS = [each for each in GETTING_ON if "ticket=2" in str(each)]


def running(*tickets: int) -> Pulse:
    pulse = Pulse(0)
    for ticket in tickets:
        pulse.began(ticket, 0)
    return pulse


async def hung(pulse: Pulse, *messages: FromWorker) -> str:
    """Say something now and then, over and over; give why that counts as hung."""
    with trio.fail_after(1000):
        async with trio.open_nursery() as nursery:

            async def beat() -> None:
                while True:
                    for message in messages:
                        await trio.sleep(BEATS_S)
                        pulse.heard(message, trio.current_time())

            nursery.start_soon(beat)
            reason = await pulse.run_out(SILENCE_S)
            nursery.cancel_scope.cancel()
    return reason


@pytest.mark.parametrize("tickets", [(), (1,)])
async def test_a_worker_that_says_nothing_hangs(tickets, autojump_clock):
    assert await running(*tickets).run_out(SILENCE_S) == no_word(SILENCE_S)
    assert trio.current_time() == SILENCE_S


async def test_a_worker_without_jobs_need_not_get_on(autojump_clock):
    with pytest.raises(trio.TooSlowError):
        await hung(running(), Alive())


async def test_a_worker_that_beats_and_gets_nowhere_hangs(autojump_clock):
    reason = await hung(running(1), *GETTING_NOWHERE)
    assert reason == "hung: no progress for 60 s"
    assert trio.current_time() == SILENCE_S


@pytest.mark.parametrize("message", GETTING_ON)
def test_what_is_told_of_a_job_is_progress(message):
    pulse = running(1, 2)
    pulse.heard(message, 50)
    pulse.heard(Alive(), 100)
    assert pulse.deadline(SILENCE_S) == 50 + SILENCE_S


@pytest.mark.parametrize("message", ENDS)
def test_jobs_that_ended_need_not_get_on(message):
    pulse = running(2)
    pulse.heard(message, 50)
    pulse.heard(Alive(), 200)
    assert pulse.deadline(SILENCE_S) == 200 + SILENCE_S


def test_jobs_that_nobody_wants_need_not_get_on():
    pulse = running(1)
    pulse.is_over(1)
    pulse.is_over(1)
    pulse.heard(Alive(), 200)
    assert pulse.deadline(SILENCE_S) == 200 + SILENCE_S


def test_the_time_begins_with_the_first_job_and_no_other_prolongs_it():
    pulse = Pulse(0)
    pulse.began(1, 100)
    pulse.began(2, 140)
    pulse.heard(Alive(), 150)
    assert pulse.deadline(SILENCE_S) == 100 + SILENCE_S
