import pytest
import trio

from inferd.engine.channel.demultiplexer import Demultiplexer
from inferd.engine.dispatcher import Dispatcher
from inferd.engine.supervisor.watchdog import AUDIO_WINDOW_S, Watchdog, silence_reason
from inferd.ipc.worker import (
    Embedded,
    Failed,
    FromWorker,
    Heartbeat,
    Paused,
    PromptReady,
    Scored,
    Step,
    Transcribed,
)
from tests.cases import each_case
from tests.fakes.media import speech
from tests.fakes.worker import ended

SILENCE_S = 60.0
BEATS_S = 10.0

PROGRESS: list[FromWorker] = [
    Step(n_read=512),
    Step(pieces=[(1, b"x")]),
    Step(ended=[ended(2, 1)]),
    Embedded(ticket=1, embeddings=b"[]", dimensions=1, is_last=False),
    Embedded(ticket=2, embeddings=b"[]", dimensions=1),
    Scored(ticket=2, scores=[1.0]),
    Failed(ticket=2, reason="no"),
]
NO_PROGRESS: list[FromWorker] = [
    Heartbeat(),
    PromptReady(ticket=9, prompt_tokens=1),
    Failed(ticket=9, reason="its prompt"),
]
ENDS = [each for each in PROGRESS if "ticket=2" in str(each)]


def receive(watchdog: Watchdog, message: FromWorker, now: float) -> None:
    Dispatcher(Demultiplexer(), watchdog, {}, lambda _: None).dispatch(message, now)


def running(*tickets: int) -> Watchdog:
    watchdog = Watchdog(0)
    for ticket in tickets:
        watchdog.job_started(ticket, 0)
    return watchdog


async def hung(watchdog: Watchdog, *messages: FromWorker) -> str:
    """Say something now and then, over and over; give why that counts as hung."""
    with trio.fail_after(1000):
        async with trio.open_nursery() as nursery:

            async def beat() -> None:
                while True:
                    for message in messages:
                        await trio.sleep(BEATS_S)
                        receive(watchdog, message, trio.current_time())

            nursery.start_soon(beat)
            reason = await watchdog.wait_until_hung(SILENCE_S)
            nursery.cancel_scope.cancel()
    return reason


@pytest.mark.parametrize("tickets", [(), (1,)])
async def test_a_silent_worker_hangs(tickets, autojump_clock):
    assert await running(*tickets).wait_until_hung(SILENCE_S) == silence_reason(
        SILENCE_S
    )
    assert trio.current_time() == SILENCE_S


async def test_silence_counts_from_when_the_watchdog_runs(autojump_clock):
    watchdog = Watchdog(0)
    await trio.sleep(1000)
    assert await watchdog.wait_until_hung(SILENCE_S) == silence_reason(SILENCE_S)
    assert trio.current_time() == 1000 + SILENCE_S


async def test_a_worker_without_jobs_needs_no_progress(autojump_clock):
    with pytest.raises(trio.TooSlowError):
        await hung(running(), Heartbeat())


async def test_a_worker_with_heartbeats_and_no_progress_hangs(autojump_clock):
    reason = await hung(running(1), *NO_PROGRESS)
    assert reason == "hung: no progress for 60 s"
    assert trio.current_time() == SILENCE_S


@each_case("message", PROGRESS)
def test_results_of_a_job_are_progress(message):
    watchdog = running(1, 2)
    receive(watchdog, message, 50)
    receive(watchdog, Heartbeat(), 100)
    assert watchdog.deadline(SILENCE_S) == 50 + SILENCE_S


@each_case("message", ENDS)
def test_jobs_that_ended_need_no_progress(message):
    watchdog = running(2)
    receive(watchdog, message, 50)
    receive(watchdog, Heartbeat(), 200)
    assert watchdog.deadline(SILENCE_S) == 200 + SILENCE_S


def test_dropped_jobs_need_no_progress():
    watchdog = running(1)
    watchdog.job_ended(1)
    watchdog.job_ended(1)
    receive(watchdog, Heartbeat(), 200)
    assert watchdog.deadline(SILENCE_S) == 200 + SILENCE_S


def test_the_time_begins_with_the_first_job_and_no_other_prolongs_it():
    watchdog = Watchdog(0)
    watchdog.job_started(1, 100)
    watchdog.job_started(2, 140)
    receive(watchdog, Heartbeat(), 150)
    assert watchdog.deadline(SILENCE_S) == 100 + SILENCE_S


# --- open sound -------------------------------------------------------------------------

WINDOW_BYTES = int(AUDIO_WINDOW_S * 16_000 * 4)


def transcribing(n_bytes: int = 0, *, is_last: bool = False) -> Watchdog:
    """One that runs a job with so much sound by now."""
    watchdog = Watchdog(0)
    watchdog.track_audio(1, speech().audio)
    watchdog.job_started(1, 0)
    watchdog.appended(1, n_bytes, 0, is_last=is_last)
    return watchdog


async def is_hung(watchdog: Watchdog, *messages: FromWorker) -> bool:
    try:
        await hung(watchdog, *messages)
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
async def test_a_job_that_waits_for_audio_needs_no_progress(
    autojump_clock, n_bytes, is_last, has_to_get_on
):
    watchdog = transcribing(n_bytes, is_last=is_last)
    assert await is_hung(watchdog, Heartbeat()) is has_to_get_on


async def test_one_transcript_is_enough_until_more_audio_comes(autojump_clock):
    watchdog = transcribing(WINDOW_BYTES)
    receive(watchdog, Transcribed(ticket=1), 0)
    assert not await is_hung(watchdog, Heartbeat())
    watchdog.appended(1, 2 * WINDOW_BYTES, trio.current_time(), is_last=False)
    assert await is_hung(watchdog, Heartbeat())


async def test_time_starts_when_there_is_enough_audio(autojump_clock):
    watchdog = transcribing()
    await trio.sleep(1000)
    receive(watchdog, Heartbeat(), trio.current_time())
    watchdog.appended(1, 4, trio.current_time(), is_last=True)
    assert watchdog.deadline(SILENCE_S) == 1000 + SILENCE_S


async def test_audio_of_a_job_that_does_not_run_is_not_due(autojump_clock):
    watchdog = Watchdog(0)
    watchdog.track_audio(1, speech().audio)
    watchdog.appended(1, WINDOW_BYTES, 0, is_last=True)
    assert not await is_hung(watchdog, Heartbeat())
    watchdog.job_started(1, trio.current_time())
    assert await is_hung(watchdog, Heartbeat())


async def test_a_transcription_hangs_only_once_it_stops(autojump_clock):
    watchdog = transcribing(WINDOW_BYTES, is_last=True)
    assert not await is_hung(watchdog, Transcribed(ticket=1))
    watchdog.job_ended(1)
    assert not await is_hung(watchdog, Heartbeat())
    watchdog.appended(1, 4, 0, is_last=True)


# --- pauses -----------------------------------------------------------------------------


def test_a_paused_job_needs_no_progress_until_it_is_resumed():
    watchdog = running(1)
    receive(watchdog, Paused(ticket=1), 10)
    receive(watchdog, Heartbeat(), 1000)
    assert watchdog.deadline(SILENCE_S) == 1000 + SILENCE_S
    watchdog.job_started(1, 1005)
    receive(watchdog, Heartbeat(), 1020)
    assert watchdog.deadline(SILENCE_S) == 1005 + SILENCE_S


def test_a_paused_job_with_unread_audio_needs_no_progress():
    watchdog = transcribing(WINDOW_BYTES)
    receive(watchdog, Paused(ticket=1), 10)
    watchdog.appended(1, 2 * WINDOW_BYTES, 20, is_last=True)
    receive(watchdog, Heartbeat(), 1000)
    assert watchdog.deadline(SILENCE_S) == 1000 + SILENCE_S
    watchdog.job_started(1, 1000)
    receive(watchdog, Heartbeat(), 1020)
    assert watchdog.deadline(SILENCE_S) == 1000 + SILENCE_S
