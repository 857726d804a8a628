from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from inferd.backend.interface import CacheReuse
from inferd.backend.job import EmbedJob, GenerateJob, Sampling, Turn
from inferd.engine.channel.transcript_validator import MAX_PARTIAL_BYTES
from inferd.engine.channel.validator import MessageValidator, ProtocolViolationError
from inferd.ipc.worker import (
    AudioNeeded,
    Embedded,
    Ended,
    Failed,
    FromWorker,
    Heartbeat,
    Loading,
    Paused,
    PromptOverflow,
    PromptReady,
    Refused,
    Scored,
    Segment,
    Started,
    Step,
    Transcribed,
    TranscriptEnded,
)
from inferd.limits.engine import (
    IPC_STRAY_BURST,
    IPC_STRAY_PER_S,
    JOB_ANSWER_BYTES,
    JOB_ITEM_BYTES,
)
from inferd.wire.responses import Alternative, DraftCounts, Logprob, Usage
from tests.cases import each_case
from tests.fakes.media import speech
from tests.fakes.worker import ended

SAMPLING = Sampling(temperature=0, top_p=1, top_k=0, seed=0)
JOB = GenerateJob(turns=[Turn("user", "hi")], max_tokens=100, sampling=SAMPLING)
EMBED = EmbedJob(texts=["a"], dimensions=None, task=None)
N_CTX = 512
WORD = "word"


def validator_of(*tickets: int) -> MessageValidator:
    """Make one that knows open jobs."""
    validator = MessageValidator()
    validator.loaded(N_CTX)
    for ticket in tickets:
        validator.job_opened(ticket)
    return validator


def refuse(validator: MessageValidator, message: FromWorker, violation: str) -> None:
    with pytest.raises(
        ProtocolViolationError, match=f"^broke the protocol: .*{violation}"
    ):
        validator.validate(message, 0)


def usage(**counts: int) -> Step:
    whole: dict[str, Any] = {"prompt_tokens": 3, "completion_tokens": 2, **counts}
    end = Ended(ticket=1, stop_reason="end", usage=Usage(**whole))
    return Step(ended=[end])


def test_requested_messages_are_accepted():
    validator = validator_of(1)
    validator.prepare_sent(1, JOB)
    told: list[FromWorker] = [
        PromptReady(ticket=1, prompt_tokens=3),
        Step(
            started=[
                Started(ticket=1, reuse=CacheReuse(cached_tokens=9, saved_bytes=1))
            ]
        ),
        Step(pieces=[(1, b"x")], prefilled=[(1, 3)], drafted=[(1, DraftCounts())]),
        Heartbeat(),
        Step(pieces=[(1, b"y")], ended=[ended(1, 2)]),
    ]
    for message in told:
        validator.validate(message, 0)


@each_case(
    "message",
    [
        Step(pieces=[(7, b"x")]),
        Step(ended=[ended(7, 1)]),
        Embedded(ticket=7, embeddings=b"[]", dimensions=1),
        Scored(ticket=7, scores=[]),
        Failed(ticket=7, reason="no"),
    ],
)
def test_a_message_for_an_unknown_job_is_a_violation(message):
    refuse(validator_of(1), message, "unknown job 7")


@each_case(
    "end",
    [
        Step(ended=[ended(1, 1)]),
        Scored(ticket=1, scores=[0.5]),
        Embedded(ticket=1, embeddings=b"[]", dimensions=1),
        Failed(ticket=1, reason="no"),
    ],
)
@each_case(
    "more",
    [
        Step(pieces=[(1, b"x")]),
        Step(ended=[ended(1, 1)]),
        Step(prefilled=[(1, 1)]),
        Failed(ticket=1, reason="again"),
    ],
)
def test_a_job_ends_once(end, more):
    validator = validator_of(1)
    validator.validate(end, 0)
    refuse(validator, more, "job 1 had ended")


@pytest.mark.parametrize(
    "answer",
    [
        PromptReady(ticket=1, prompt_tokens=3),
        Refused(ticket=1, reason="no"),
        PromptOverflow(ticket=1, prompt_tokens=9, n_ctx=8),
    ],
)
def test_a_prepare_is_answered_once_and_only_if_it_was_sent(answer):
    validator = validator_of(1)
    refuse(validator, answer, "not sent")
    validator.prepare_sent(1, EMBED)
    validator.validate(answer, 0)
    refuse(validator, answer, "not sent")
    validator.prepare_sent(2, EMBED)
    refuse(validator, answer, "not sent")


def test_a_failure_answers_a_pending_prepare_and_otherwise_ends_a_run():
    validator = validator_of(1, 2)
    validator.prepare_sent(2, JOB)
    validator.validate(Failed(ticket=1, reason="a run"), 0)
    validator.validate(Failed(ticket=2, reason="a prompt"), 0)
    refuse(validator, PromptReady(ticket=2, prompt_tokens=1), "not sent")
    refuse(validator, Failed(ticket=1, reason="again"), "had ended")


def test_no_prompt_is_longer_than_the_context_but_texts_together_may_be():
    validator = validator_of()
    validator.prepare_sent(1, EMBED)
    validator.validate(PromptReady(ticket=1, prompt_tokens=N_CTX * 9), 0)
    validator.prepare_sent(2, JOB)
    refuse(validator, PromptReady(ticket=2, prompt_tokens=N_CTX + 1), "count of 512")


@each_case(
    "message",
    [
        usage(prompt_tokens=-1),
        usage(completion_tokens=-1),
        usage(completion_tokens=2**60),
        usage(cached_tokens=4),
        usage(cached_tokens=-1),
        usage(accepted_tokens=2, drafted_tokens=1),
        usage(completion_tokens=N_CTX),
        Step(started=[Started(ticket=1, reuse=CacheReuse(cached_tokens=-1))]),
        Step(started=[Started(ticket=1, reuse=CacheReuse(saved_bytes=2**60))]),
        Step(drafted=[(1, DraftCounts(drafted_tokens=-1))]),
        Step(drafted=[(1, DraftCounts(accepted_tokens=1))]),
        Scored(ticket=1, scores=[0.5, float("nan")]),
        Embedded(ticket=1, embeddings=b"[]\n{}", dimensions=1),
        Loading(phase="mmap"),
    ],
)
def test_implausible_numbers_are_a_violation(message):
    refuse(validator_of(1), message, "")


def test_without_a_context_limit_any_count_is_accepted():
    validator = MessageValidator()
    validator.job_opened(1)
    validator.validate(usage(completion_tokens=10**9), 0)


def test_an_answer_is_bounded():
    validator = validator_of(1)
    n_bytes = JOB_ANSWER_BYTES // 4 - JOB_ITEM_BYTES
    message = Step(pieces=[(1, b"x" * n_bytes)])
    for _ in range(4):
        validator.validate(message, 0)
    refuse(validator, message, "the answer to job 1 is too long")


def test_the_bound_allows_for_requested_log_probabilities(monkeypatch):
    monkeypatch.setattr("inferd.engine.channel.validator.JOB_ANSWER_BYTES", 0)
    each = Alternative(token=WORD, id=1, bytes=list(b"word"), logprob=0.0)
    logprob = Logprob(
        token=WORD, id=1, bytes=list(b"word"), logprob=0.0, top_logprobs=[each] * 20
    )
    message = Step(pieces=[(1, b"word")], logprobs=[(1, logprob)])
    validator = validator_of()
    refuse(validator_of(1), message, "")
    validator.prepare_sent(1, replace(JOB, max_tokens=9, n_alternatives=20))
    for _ in range(9):
        validator.validate(message, 0)


def test_messages_for_dropped_jobs_are_tolerated_up_to_a_bound():
    validator = validator_of(1)
    validator.job_closed(1)
    many = Step(pieces=[(1, b"")] * IPC_STRAY_BURST)
    validator.validate(many, 0)
    refuse(validator, Step(pieces=[(1, b"")]), "too many messages for closed jobs")


@pytest.mark.parametrize(
    "message", [Heartbeat(), Step(), Failed(ticket=1, reason="late")]
)
def test_stray_messages_are_tolerated_at_a_bounded_rate(message):
    validator = validator_of(1)
    validator.job_closed(1)
    for n in range(2 * IPC_STRAY_BURST):
        validator.validate(message, n / IPC_STRAY_PER_S)
    with pytest.raises(
        ProtocolViolationError, match="too many messages for closed jobs"
    ):
        for _ in range(IPC_STRAY_BURST + 1):
            validator.validate(message, n / IPC_STRAY_PER_S)


def test_a_job_costs_nothing_once_it_is_closed():
    validator = validator_of()
    for ticket in range(1000):
        validator.prepare_sent(ticket, JOB)
        validator.job_closed(ticket)
    assert validator._jobs == {}


COUNTS = st.integers(-(2**63), 2**63)
TICKETS = st.integers(0, 4)
MESSAGES = st.one_of(
    st.builds(Heartbeat),
    st.builds(PromptReady, ticket=TICKETS, prompt_tokens=COUNTS),
    st.builds(Failed, ticket=TICKETS, reason=st.just("no")),
    st.builds(Scored, ticket=TICKETS, scores=st.lists(st.floats())),
    st.builds(
        Step,
        started=st.lists(
            st.builds(
                Started,
                ticket=TICKETS,
                reuse=st.builds(CacheReuse, cached_tokens=COUNTS),
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
def test_any_message_is_accepted_or_a_violation(messages):
    validator = validator_of(1, 2)
    validator.job_closed(2)
    validator.prepare_sent(3, JOB)
    with suppress(ProtocolViolationError):
        for message in messages:
            validator.validate(message, 0)


# --- speech -----------------------------------------------------------------------------


def transcribed(n_bytes: int = 1, **fields: Any) -> Transcribed:
    segment = Segment(text=b"x" * n_bytes, start_ms=0, end_ms=1)
    return Transcribed(ticket=1, segments=[segment], n_tokens=1, **fields)


def end_of_speech(**fields: Any) -> TranscriptEnded:
    whole = {"language": "en", "audio_ms": 1, "computing_ms": 1, **fields}
    counts = Usage(prompt_tokens=50, completion_tokens=3000)
    return TranscriptEnded(ticket=1, stop_reason="end", usage=counts, **whole)


def transcribing(n_bytes: int = 0) -> MessageValidator:
    validator = validator_of(1)
    validator.prepare_sent(1, speech())
    validator.appended(1, n_bytes)
    validator.appended(7, n_bytes)
    return validator


def test_a_requested_transcript_is_accepted_to_its_end():
    validator = transcribing(64)
    partial = Segment(text=b"x", start_ms=0, end_ms=1)
    for message in (
        PromptReady(ticket=1, prompt_tokens=N_CTX + 1),
        transcribed(),
        Transcribed(ticket=1, partial=partial, n_bytes_read=64),
        end_of_speech(),
    ):
        validator.validate(message, 0)
    refuse(validator, transcribed(), "job 1 had ended")


@each_case(
    ("message", "violation"),
    [
        (transcribed(n_bytes_read=65), "65 bytes of 64 are read"),
        (end_of_speech(audio_ms=10**9), "ms of audio"),
        (end_of_speech(computing_ms=2**60), "a count of"),
        (Transcribed(ticket=1, n_tokens=2**60), "a count of"),
        (transcribed(JOB_ANSWER_BYTES), "the answer to job 1 is too long"),
        (Transcribed(ticket=7), "unknown job"),
    ],
)
def test_an_implausible_transcript_is_a_violation(message, violation):
    refuse(transcribing(64), message, violation)


def test_provisional_text_beside_segments_is_charged():
    validator = transcribing()
    partial = Segment(text=b"x" * MAX_PARTIAL_BYTES, start_ms=0, end_ms=1)
    said = transcribed(partial=partial)
    for _ in range(JOB_ANSWER_BYTES // (MAX_PARTIAL_BYTES + 2 * JOB_ITEM_BYTES + 1)):
        validator.validate(said, 0)
    refuse(validator, said, "the answer to job 1 is too long")


@pytest.mark.parametrize("message", [transcribed(), end_of_speech()])
def test_other_jobs_have_no_transcript(message):
    validator = validator_of(1)
    validator.prepare_sent(1, JOB)
    refuse(validator, message, "a transcript for a job without audio")


def test_a_transcript_of_a_dropped_job_is_tolerated():
    validator = transcribing()
    validator.job_closed(1)
    for message in (transcribed(), end_of_speech()):
        validator.validate(message, 0)


def test_provisional_text_is_accepted_at_a_bounded_rate():
    validator = transcribing()
    for _ in range(IPC_STRAY_BURST):
        validator.validate(Transcribed(ticket=1), 0)
    refuse(validator, Transcribed(ticket=1), "too many messages for closed jobs")


# --- pauses -----------------------------------------------------------------------------


def test_a_job_is_paused_once_per_request():
    validator = validator_of(1)
    refuse(validator, Paused(ticket=1), "not asked to pause")
    validator.pause_sent(1)
    validator.validate(Paused(ticket=1), 0)
    refuse(validator, Paused(ticket=1), "not asked to pause")
    refuse(validator, Paused(ticket=2), "unknown job")


def test_a_pause_may_cross_with_the_end_of_a_job():
    validator = validator_of(1)
    validator.pause_sent(1)
    validator.job_closed(1)
    validator.pause_sent(1)
    validator.validate(Paused(ticket=1), 0)


def test_only_a_job_with_audio_needs_more_of_it():
    validator = validator_of(1)
    refuse(validator, AudioNeeded(ticket=1, until_bytes=5), "without audio")
    validator.prepare_sent(2, speech(is_open=True))
    validator.validate(AudioNeeded(ticket=2, until_bytes=5), 0)


def test_repeated_needs_for_audio_count_as_strays():
    validator = validator_of()
    validator.prepare_sent(2, speech(is_open=True))
    with pytest.raises(ProtocolViolationError, match="too many"):
        for _ in range(IPC_STRAY_BURST + 1):
            validator.validate(AudioNeeded(ticket=2, until_bytes=5), 0)
