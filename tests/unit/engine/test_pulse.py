import pytest
import trio

from inferd.engine.pulse import OWED_S, Pulse, no_word
from inferd.ipc import (
    Alive,
    Embedded,
    Failed,
    FromWorker,
    Paused,
    PromptReady,
    Scored,
    Step,
    Transcribed,
)
from tests.fakes.media import speech
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


async def test_silence_counts_from_when_it_is_listened_to(autojump_clock):
    pulse = Pulse(0)
    await trio.sleep(1000)
    assert await pulse.run_out(SILENCE_S) == no_word(SILENCE_S)
    assert trio.current_time() == 1000 + SILENCE_S


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


# --- open sound -------------------------------------------------------------------------

WINDOW_BYTES = int(OWED_S * 16_000 * 4)


def listening(n_bytes: int = 0, *, is_last: bool = False) -> Pulse:
    """One that runs a job with so much sound by now."""
    pulse = Pulse(0)
    pulse.asked(1, speech().audio)
    pulse.began(1, 0)
    pulse.appended(1, n_bytes, 0, is_last=is_last)
    return pulse


async def is_hung(pulse: Pulse, *messages: FromWorker) -> bool:
    try:
        await hung(pulse, *messages)
    except trio.TooSlowError:
        return False
    return True


@pytest.mark.parametrize(
    ("n_bytes", "is_last", "has_to_get_on"),
    [
        (0, False, False),
        (WINDOW_BYTES - 4, False, False),
        (WINDOW_BYTES, False, True),
        (0, True, True),
    ],
)
async def test_a_job_that_waits_for_sound_need_not_get_on(
    autojump_clock, n_bytes, is_last, has_to_get_on
):
    pulse = listening(n_bytes, is_last=is_last)
    assert await is_hung(pulse, Alive()) is has_to_get_on


async def test_a_word_about_sound_is_enough_until_more_comes(autojump_clock):
    pulse = listening(WINDOW_BYTES)
    pulse.heard(Transcribed(ticket=1), 0)
    assert not await is_hung(pulse, Alive())
    pulse.appended(1, 2 * WINDOW_BYTES, trio.current_time(), is_last=False)
    assert await is_hung(pulse, Alive())


async def test_time_begins_when_there_is_something_to_get_on_with(autojump_clock):
    pulse = listening()
    await trio.sleep(1000)
    pulse.heard(Alive(), trio.current_time())
    pulse.appended(1, 4, trio.current_time(), is_last=True)
    assert pulse.deadline(SILENCE_S) == 1000 + SILENCE_S


async def test_sound_that_waits_for_its_turn_is_not_owed(autojump_clock):
    pulse = Pulse(0)
    pulse.asked(1, speech().audio)
    pulse.appended(1, WINDOW_BYTES, 0, is_last=True)
    assert not await is_hung(pulse, Alive())
    pulse.began(1, trio.current_time())
    assert await is_hung(pulse, Alive())


async def test_speech_that_goes_on_hangs_only_once_it_stops(autojump_clock):
    pulse = listening(WINDOW_BYTES, is_last=True)
    assert not await is_hung(pulse, Transcribed(ticket=1))
    pulse.is_over(1)
    assert not await is_hung(pulse, Alive())
    pulse.appended(1, 4, 0, is_last=True)


# --- pauses -----------------------------------------------------------------------------


def test_a_job_that_is_paused_need_not_get_on_until_it_is_resumed():
    pulse = running(1)
    pulse.heard(Paused(ticket=1), 10)
    pulse.heard(Alive(), 1000)
    assert pulse.deadline(SILENCE_S) == 1000 + SILENCE_S
    pulse.began(1, 1005)
    pulse.heard(Alive(), 1020)
    assert pulse.deadline(SILENCE_S) == 1005 + SILENCE_S


def test_nor_one_that_is_paused_with_more_sound_than_it_has_heard():
    pulse = listening(WINDOW_BYTES)
    pulse.heard(Paused(ticket=1), 10)
    pulse.appended(1, 2 * WINDOW_BYTES, 20, is_last=True)
    pulse.heard(Alive(), 1000)
    assert pulse.deadline(SILENCE_S) == 1000 + SILENCE_S
    pulse.began(1, 1000)
    pulse.heard(Alive(), 1020)
    assert pulse.deadline(SILENCE_S) == 1000 + SILENCE_S
