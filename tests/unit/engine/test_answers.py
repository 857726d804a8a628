import pytest
import trio

from inferd.backend import Reuse
from inferd.engine.answers import Answers, Place, Prefilled, WorkerDiedError
from inferd.ipc import (
    Alive,
    Embedded,
    Failed,
    PromptReady,
    Scored,
    Segment,
    Started,
    Step,
    Transcribed,
    TranscriptEnded,
)
from inferd.wire.responses import Guesses, Logprob, Usage
from tests.fakes.worker import ended

WORD = "a"


@pytest.fixture
def answers():
    answers = Answers()
    answers.open(1)
    return answers


async def test_each_job_gets_its_own_and_others_are_ignored(answers):
    step = Step(pieces=[(1, b"a"), (2, b"b")], prefilled=[(1, 3)], ended=[ended(1, 1)])
    answers.sort(step)
    answers.sort(Alive())
    assert await answers.open(1).take() == [Prefilled(3), b"a", ended(1, 1)]
    assert 2 not in answers


async def test_all_that_a_step_tells_comes_in_order_each_number_before_its_piece(
    answers,
):
    guesses, reuse = (
        Guesses(drafted_tokens=3, accepted_tokens=1),
        Reuse(cached_tokens=2),
    )
    numbers = [
        Logprob(token=WORD, id=n, bytes=[97], logprob=0.0, top_logprobs=[])
        for n in range(2)
    ]
    answers.open(2)
    step = Step(
        started=[Started(ticket=1, reuse=reuse)],
        prefilled=[(1, 3)],
        guessed=[(1, guesses)],
        logprobs=[(1, numbers[0]), (1, numbers[1])],
        pieces=[(1, b"a"), (2, b"b"), (1, b"a"), (2, b"b")],
    )
    answers.sort(step)
    assert await answers.open(1).take() == [
        *(reuse, Prefilled(3), guesses),
        *(numbers[0], b"a", numbers[1], b"a"),
    ]
    assert await answers.open(2).take() == [b"b", b"b"]


def test_an_end_of_a_job_that_was_dropped_is_not_that_of_a_later_one(answers):
    answers.sort(Step(ended=[ended(2, 1)]))
    answers.open(2)
    assert not answers.close(2)


@pytest.mark.parametrize(
    ("message", "is_an_end"),
    [
        (Step(ended=[ended(1, 0)]), True),
        (Scored(ticket=1, scores=[]), True),
        (Embedded(ticket=1, embeddings=b"[]", dimensions=1), True),
        (Embedded(ticket=1, embeddings=b"[]", dimensions=1, is_last=False), False),
        (Failed(ticket=1, reason="r"), False),
        (PromptReady(ticket=1, prompt_tokens=1), False),
    ],
)
async def test_a_job_at_its_end_is_a_service_and_needs_no_drop(
    answers, message, is_an_end, autojump_clock
):
    answers.sort(message)
    told = message.ended[0] if isinstance(message, Step) else message
    with trio.fail_after(1):
        assert await answers.open(1).take() == [told]
    assert answers.has_served is is_an_end
    assert answers.close(1) is is_an_end
    assert 1 not in answers


async def test_whoever_comes_after_the_end_hears_of_it(answers):
    answers.fail_all("gone")
    assert 1 not in answers
    with pytest.raises(WorkerDiedError, match="gone"):
        await answers.open(2).take()


def heard(text=b"", partial=b"", n_bytes_read=0):
    def segment(said):
        return Segment(text=said, start_ms=0, end_ms=1)

    return Transcribed(
        ticket=1,
        segments=[segment(text)] if text else [],
        partial=segment(partial) if partial else None,
        n_bytes_read=n_bytes_read,
    )


async def test_of_what_may_change_the_latest_waits_for_its_reader(answers):
    for message in (
        heard(partial=b"he", n_bytes_read=4),
        heard(partial=b"hello"),
        heard(b"Hello."),
        heard(b" I"),
        heard(partial=b"am"),
        heard(partial=b"was", n_bytes_read=8),
    ):
        answers.sort(message)
    assert await answers.open(1).take() == [
        heard(b"Hello.", n_bytes_read=4),
        heard(b" I"),
        heard(partial=b"was", n_bytes_read=8),
    ]
    answers.close(1)
    answers.sort(heard(b"lost"))


async def test_the_end_of_speech_is_a_service(answers):
    usage = Usage(prompt_tokens=1, completion_tokens=2)
    end = TranscriptEnded(
        ticket=1,
        stop_reason="end",
        usage=usage,
        language="en",
        audio_ms=1,
        computing_ms=1,
    )
    answers.sort(end)
    assert answers.has_served
    assert await answers.open(1).take() == [end]


async def test_of_places_in_the_queue_the_latest_waits_for_its_reader(answers):
    answers.put_place(1, 3)
    answers.put_place(1, 2)
    answers.put_place(9, 1)
    assert await answers.open(1).take() == [Place(2)]
    answers.put_place(1, 1)
    answers.sort(Step(pieces=[(1, b"a")]))
    assert await answers.open(1).take() == [Place(1), b"a"]
