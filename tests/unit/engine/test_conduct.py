from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from inferd.backend import Reuse
from inferd.engine.conduct import Conduct, LieError
from inferd.engine.transcript import PARTIAL_BYTES
from inferd.ipc import (
    Alive,
    Embedded,
    Ended,
    Failed,
    FromWorker,
    Loading,
    Overflow,
    Paused,
    PromptReady,
    Refused,
    Scored,
    Segment,
    Silent,
    Started,
    Step,
    Transcribed,
    TranscriptEnded,
)
from inferd.job import EmbedJob, GenerateJob, Sampling, Turn
from inferd.limits import (
    IPC_CHATTER_MESSAGES,
    IPC_CHATTER_PER_S,
    JOB_ANSWER_BYTES,
    JOB_ITEM_BYTES,
)
from inferd.wire.responses import Alternative, Guesses, Logprob, Usage
from tests.fakes.media import speech
from tests.fakes.worker import ended

SAMPLING = Sampling(temperature=0, top_p=1, top_k=0, seed=0)
JOB = GenerateJob(turns=[Turn("user", "hi")], max_tokens=100, sampling=SAMPLING)
EMBED = EmbedJob(texts=["a"], dimensions=None, task=None)
N_CTX = 512
WORD = "word"


def conduct_of(*tickets: int) -> Conduct:
    """Make one that knows open jobs."""
    conduct = Conduct()
    conduct.loaded(N_CTX)
    for ticket in tickets:
        conduct.opened(ticket)
    return conduct


def refuse(conduct: Conduct, message: FromWorker, lie: str) -> None:
    with pytest.raises(LieError, match=f"^broke the protocol: .*{lie}"):
        conduct.heard(message, 0)


def usage(**counts: int) -> Step:
    whole = {"prompt_tokens": 3, "completion_tokens": 2, **counts}
    end = Ended(ticket=1, stop_reason="end", usage=Usage(**whole))
    return Step(ended=[end])


def test_what_is_asked_may_be_answered():
    conduct = conduct_of(1)
    conduct.asked(1, JOB)
    told: list[FromWorker] = [
        PromptReady(ticket=1, prompt_tokens=3),
        Step(started=[Started(ticket=1, reuse=Reuse(cached_tokens=9, saved_bytes=1))]),
        Step(pieces=[(1, b"x")], prefilled=[(1, 3)], guessed=[(1, Guesses())]),
        Alive(),
        Step(pieces=[(1, b"y")], ended=[ended(1, 2)]),
    ]
    for message in told:
        conduct.heard(message, 0)


@pytest.mark.parametrize(
    "message",
    [
        Step(pieces=[(7, b"x")]),
        Step(ended=[ended(7, 1)]),
        Embedded(ticket=7, embeddings=b"[]", dimensions=1),
        Scored(ticket=7, scores=[]),
        Failed(ticket=7, reason="no"),
    ],
)
def test_a_job_that_there_never_was_is_a_lie(message):
    refuse(conduct_of(1), message, "job 7 was never given to it")


@pytest.mark.parametrize(
    "end",
    [
        Step(ended=[ended(1, 1)]),
        Scored(ticket=1, scores=[0.5]),
        Embedded(ticket=1, embeddings=b"[]", dimensions=1),
        Failed(ticket=1, reason="no"),
    ],
)
@pytest.mark.parametrize(
    "more",
    [
        Step(pieces=[(1, b"x")]),
        Step(ended=[ended(1, 1)]),
        Step(prefilled=[(1, 1)]),
        Failed(ticket=1, reason="again"),
    ],
)
def test_a_job_ends_once(end, more):
    conduct = conduct_of(1)
    conduct.heard(end, 0)
    refuse(conduct, more, "job 1 was over")


@pytest.mark.parametrize(
    "answer",
    [
        PromptReady(ticket=1, prompt_tokens=3),
        Refused(ticket=1, reason="no"),
        Overflow(ticket=1, prompt_tokens=9, n_ctx=8),
    ],
)
def test_a_prompt_is_answered_once_and_only_if_it_was_asked(answer):
    conduct = conduct_of(1)
    refuse(conduct, answer, "not asked")
    conduct.asked(1, EMBED)
    conduct.heard(answer, 0)
    refuse(conduct, answer, "not asked")
    conduct.asked(2, EMBED)
    refuse(conduct, answer, "not asked")


def test_a_failure_answers_the_prompt_that_is_asked_and_else_ends_a_run():
    conduct = conduct_of(1, 2)
    conduct.asked(2, JOB)
    conduct.heard(Failed(ticket=1, reason="a run"), 0)
    conduct.heard(Failed(ticket=2, reason="a prompt"), 0)
    refuse(conduct, PromptReady(ticket=2, prompt_tokens=1), "not asked")
    refuse(conduct, Failed(ticket=1, reason="again"), "over")


def test_no_prompt_is_longer_than_the_context_but_texts_together_may_be():
    conduct = conduct_of()
    conduct.asked(1, EMBED)
    conduct.heard(PromptReady(ticket=1, prompt_tokens=N_CTX * 9), 0)
    conduct.asked(2, JOB)
    refuse(conduct, PromptReady(ticket=2, prompt_tokens=N_CTX + 1), "count of 512")


@pytest.mark.parametrize(
    "message",
    [
        usage(prompt_tokens=-1),
        usage(completion_tokens=-1),
        usage(completion_tokens=2**60),
        usage(cached_tokens=4),
        usage(cached_tokens=-1),
        usage(accepted_tokens=2, drafted_tokens=1),
        usage(completion_tokens=N_CTX),
        Step(started=[Started(ticket=1, reuse=Reuse(cached_tokens=-1))]),
        Step(started=[Started(ticket=1, reuse=Reuse(saved_bytes=2**60))]),
        Step(guessed=[(1, Guesses(drafted_tokens=-1))]),
        Step(guessed=[(1, Guesses(accepted_tokens=1))]),
        Scored(ticket=1, scores=[0.5, float("nan")]),
        Embedded(ticket=1, embeddings=b"[]\n{}", dimensions=1),
        Loading(phase="mmap"),
    ],
)
def test_what_cannot_be_is_a_lie(message):
    refuse(conduct_of(1), message, "")


def test_without_a_bound_a_context_holds_any_count():
    conduct = Conduct()
    conduct.opened(1)
    conduct.heard(usage(completion_tokens=10**9), 0)


def test_an_answer_ends_somewhere():
    conduct = conduct_of(1)
    n_bytes = JOB_ANSWER_BYTES // 4 - JOB_ITEM_BYTES
    message = Step(pieces=[(1, b"x" * n_bytes)])
    for _ in range(4):
        conduct.heard(message, 0)
    refuse(conduct, message, "no answer is as long as that of job 1")


def test_log_probabilities_that_were_asked_for_have_room(monkeypatch):
    monkeypatch.setattr("inferd.engine.conduct.JOB_ANSWER_BYTES", 0)
    each = Alternative(token=WORD, id=1, bytes=list(b"word"), logprob=0.0)
    logprob = Logprob(
        token=WORD, id=1, bytes=list(b"word"), logprob=0.0, top_logprobs=[each] * 20
    )
    message = Step(pieces=[(1, b"word")], logprobs=[(1, logprob)])
    conduct = conduct_of()
    refuse(conduct_of(1), message, "")
    conduct.asked(1, replace(JOB, max_tokens=9, n_alternatives=20))
    for _ in range(9):
        conduct.heard(message, 0)


def test_what_crossed_with_a_drop_is_borne_but_not_for_ever():
    conduct = conduct_of(1)
    conduct.closed(1)
    many = Step(pieces=[(1, b"")] * IPC_CHATTER_MESSAGES)
    conduct.heard(many, 0)
    refuse(conduct, Step(pieces=[(1, b"")]), "endless chatter")


@pytest.mark.parametrize("message", [Alive(), Step(), Failed(ticket=1, reason="late")])
def test_chatter_is_borne_at_a_rate(message):
    conduct = conduct_of(1)
    conduct.closed(1)
    for n in range(2 * IPC_CHATTER_MESSAGES):
        conduct.heard(message, n / IPC_CHATTER_PER_S)
    with pytest.raises(LieError, match="endless chatter"):
        for _ in range(IPC_CHATTER_MESSAGES + 1):
            conduct.heard(message, n / IPC_CHATTER_PER_S)


def test_a_job_costs_nothing_once_it_is_closed():
    conduct = conduct_of()
    for ticket in range(1000):
        conduct.asked(ticket, JOB)
        conduct.closed(ticket)
    assert conduct._jobs == {}


COUNTS = st.integers(-(2**63), 2**63)
TICKETS = st.integers(0, 4)
MESSAGES = st.one_of(
    st.builds(Alive),
    st.builds(PromptReady, ticket=TICKETS, prompt_tokens=COUNTS),
    st.builds(Failed, ticket=TICKETS, reason=st.just("no")),
    st.builds(Scored, ticket=TICKETS, scores=st.lists(st.floats())),
    st.builds(
        Step,
        started=st.lists(
            st.builds(
                Started, ticket=TICKETS, reuse=st.builds(Reuse, cached_tokens=COUNTS)
            )
        ),
        pieces=st.lists(st.tuples(TICKETS, st.binary(max_size=9))),
        prefilled=st.lists(st.tuples(TICKETS, COUNTS)),
        ended=st.lists(
            st.builds(
                Ended,
                ticket=TICKETS,
                stop_reason=st.just("end"),
                usage=st.builds(Usage, COUNTS, COUNTS, COUNTS),
            )
        ),
    ),
)


@given(st.lists(MESSAGES, max_size=30))
def test_whatever_is_said_is_believed_or_a_lie(messages):
    conduct = conduct_of(1, 2)
    conduct.closed(2)
    conduct.asked(3, JOB)
    with suppress(LieError):
        for message in messages:
            conduct.heard(message, 0)


# --- speech -----------------------------------------------------------------------------


def words(n_bytes: int = 1, **fields: Any) -> Transcribed:
    segment = Segment(text=b"x" * n_bytes, start_ms=0, end_ms=1)
    return Transcribed(ticket=1, segments=[segment], n_tokens=1, **fields)


def end_of_speech(**fields: Any) -> TranscriptEnded:
    whole = {"language": "en", "audio_ms": 1, "computing_ms": 1, **fields}
    counts = Usage(prompt_tokens=50, completion_tokens=3000)
    return TranscriptEnded(ticket=1, stop_reason="end", usage=counts, **whole)


def hearing(n_bytes: int = 0) -> Conduct:
    conduct = conduct_of(1)
    conduct.asked(1, speech())
    conduct.appended(1, n_bytes)
    conduct.appended(7, n_bytes)
    return conduct


def test_speech_that_was_asked_for_may_be_told_to_its_end():
    conduct = hearing(64)
    partial = Segment(text=b"x", start_ms=0, end_ms=1)
    for message in (
        PromptReady(ticket=1, prompt_tokens=N_CTX + 1),
        words(),
        Transcribed(ticket=1, partial=partial, n_bytes_read=64),
        end_of_speech(),
    ):
        conduct.heard(message, 0)
    refuse(conduct, words(), "job 1 was over")


@pytest.mark.parametrize(
    ("message", "lie"),
    [
        (words(n_bytes_read=65), "65 bytes of 64 are read"),
        (end_of_speech(audio_ms=10**9), "ms were heard"),
        (end_of_speech(computing_ms=2**60), "a count of"),
        (Transcribed(ticket=1, n_tokens=2**60), "a count of"),
        (words(JOB_ANSWER_BYTES), "no answer is as long"),
        (Transcribed(ticket=7), "never given"),
    ],
)
def test_speech_that_cannot_have_been_heard_is_a_lie(message, lie):
    refuse(hearing(64), message, lie)


def test_what_may_change_is_charged_for_where_it_is_kept_with_words():
    conduct = hearing()
    partial = Segment(text=b"x" * PARTIAL_BYTES, start_ms=0, end_ms=1)
    said = words(partial=partial)
    for _ in range(JOB_ANSWER_BYTES // (PARTIAL_BYTES + 2 * JOB_ITEM_BYTES + 1)):
        conduct.heard(said, 0)
    refuse(conduct, said, "no answer is as long")


@pytest.mark.parametrize("message", [words(), end_of_speech()])
def test_other_jobs_have_no_speech(message):
    conduct = conduct_of(1)
    conduct.asked(1, JOB)
    refuse(conduct, message, "speech of a job that has none")


def test_speech_of_a_job_that_was_dropped_is_borne():
    conduct = hearing()
    conduct.closed(1)
    for message in (words(), end_of_speech()):
        conduct.heard(message, 0)


def test_what_may_change_is_said_so_often_and_no_more():
    conduct = hearing()
    for _ in range(IPC_CHATTER_MESSAGES):
        conduct.heard(Transcribed(ticket=1), 0)
    refuse(conduct, Transcribed(ticket=1), "endless chatter")


# --- pauses -----------------------------------------------------------------------------


def test_a_job_is_paused_once_for_each_time_it_was_to_be():
    conduct = conduct_of(1)
    refuse(conduct, Paused(ticket=1), "was not to be")
    conduct.asked_to_pause(1)
    conduct.heard(Paused(ticket=1), 0)
    refuse(conduct, Paused(ticket=1), "was not to be")
    refuse(conduct, Paused(ticket=2), "never given")


def test_a_pause_may_cross_with_the_end_of_a_job():
    conduct = conduct_of(1)
    conduct.asked_to_pause(1)
    conduct.closed(1)
    conduct.asked_to_pause(1)
    conduct.heard(Paused(ticket=1), 0)


def test_only_a_job_with_a_sound_waits_for_more_of_it():
    conduct = conduct_of(1)
    refuse(conduct, Silent(ticket=1, until_bytes=5), "without a sound")
    conduct.asked(2, speech(is_open=True))
    conduct.heard(Silent(ticket=2, until_bytes=5), 0)


def test_to_be_silent_over_and_over_is_chatter():
    conduct = conduct_of()
    conduct.asked(2, speech(is_open=True))
    with pytest.raises(LieError, match="chatter"):
        for _ in range(IPC_CHATTER_MESSAGES + 1):
            conduct.heard(Silent(ticket=2, until_bytes=5), 0)
