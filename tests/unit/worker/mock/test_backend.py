import json
import math
import os
import signal
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from inferd.backend.job import EmbedJob, GenerateJob, RerankJob, Sampling, Turn
from inferd.config.kinds.mock import MockSettings
from inferd.dialects.registry import DIALECTS
from inferd.ipc.worker import CpuVariant, Embedded, Ended, Loading, Paused, Scored, Step
from inferd.wire.responses import Usage
from inferd.worker.backend import RefusedError
from inferd.worker.mock.backend import N_EMBD, MockBackend
from tests.cases import each_case


def job(max_tokens: int = 1000, **fields: Any) -> GenerateJob:
    return GenerateJob(
        turns=[Turn("user", "hi")],
        max_tokens=max_tokens,
        sampling=Sampling(temperature=0, top_p=1, top_k=0, seed=0),
        **fields,
    )


def embed_job(*texts: str, dimensions: int | None = None) -> EmbedJob:
    return EmbedJob(texts=[*texts], dimensions=dimensions, task=None)


def backend(*tokens: str, **settings: Any) -> MockBackend:
    return MockBackend(MockSettings(name="m", tokens=tokens, **settings))


def started(mock: MockBackend, *tickets: int, **fields: Any) -> MockBackend:
    for ticket in tickets:
        mock.start(ticket, mock.prepare(job(**fields)))
    return mock


def ended(ticket: int, n_tokens: int, why: Any = "end", **fields: Any) -> Ended:
    usage = Usage(prompt_tokens=0, completion_tokens=n_tokens)
    return Ended(ticket=ticket, stop_reason=why, usage=usage, **fields)


def step_of(mock: MockBackend) -> Step:
    """Take the only thing that comes of a step."""
    [step] = mock.step()
    assert isinstance(step, Step)
    return step


def outcome_of(mock: MockBackend, job: EmbedJob | RerankJob) -> Any:
    """Take what comes of a job that one step does."""
    mock.start(7, mock.prepare(job))
    empty, outcome = mock.step()
    assert empty == Step()
    assert isinstance(outcome, Embedded | Scored)
    assert outcome.ticket == 7
    assert not mock.is_busy
    return outcome


@pytest.fixture
def deaths(monkeypatch):
    """The signals that the worker would have died by."""
    signals: list[int] = []
    fake = SimpleNamespace(getpid=os.getpid, kill=lambda _, each: signals.append(each))
    monkeypatch.setattr("inferd.worker.mock.backend.os", fake)
    return signals


def test_it_is_ready_at_once():
    reports: list[Loading | CpuVariant] = []
    loaded = backend().load(reports.append)
    assert loaded.library == loaded.capabilities.model == "mock"
    assert reports == [Loading(phase="checking_local", path="(mock)")]


def test_it_can_do_all_that_the_wire_has_but_media():
    able = backend().load(lambda _: None).capabilities
    assert able.generate
    assert able.v2
    assert able.tools
    assert able.thinking
    assert able.embed
    assert able.rerank
    assert not any((able.vision, able.audio, able.video))
    assert able.n_embd == N_EMBD == 8


def test_its_dialect_is_plain():
    dialect = DIALECTS[backend().load(lambda _: None).capabilities.dialect]
    assert {"<think>", "</think>", "<tool_call>", "</tool_call>"} <= {*dialect.markers}


def test_it_sends_one_token_a_step_and_ends_with_the_last():
    mock = started(backend("Hé", "llo"), 7)
    assert step_of(mock) == Step(pieces=[(7, "Hé".encode())])
    assert mock.is_busy
    assert step_of(mock) == Step(pieces=[(7, b"llo")], ended=[ended(7, 2)])
    assert not mock.is_busy
    assert step_of(mock) == Step()


def test_its_prompts_cost_nothing():
    assert backend("a").prepare(job()).prompt_tokens == 0


@each_case(
    ("max_tokens", "why"), [(0, "length"), (1, "length"), (2, "end"), (3, "end")]
)
def test_it_sends_at_most_max_tokens(max_tokens, why):
    mock = started(backend("a", "b"), 1, max_tokens=max_tokens)
    steps = [step_of(mock) for _ in range(max(1, min(max_tokens, 2)))]
    pieces = [piece for step in steps for _, piece in step.pieces]
    assert pieces == [b"a", b"b"][:max_tokens]
    assert steps[-1].ended == [ended(1, len(pieces), why)]


def test_without_a_script_it_ends_at_once():
    assert step_of(started(backend(), 1)) == Step(ended=[ended(1, 0)])


def test_many_answers_run_at_once_each_at_its_own_position():
    mock = started(backend("a", "b"), 1)
    step_of(mock)
    started(mock, 2)
    assert step_of(mock) == Step(pieces=[(1, b"b"), (2, b"a")], ended=[ended(1, 2)])
    assert step_of(mock) == Step(pieces=[(2, b"b")], ended=[ended(2, 2)])


def test_a_dropped_job_sends_nothing():
    mock = started(backend("a", "b"), 1, 2)
    mock.drop(1)
    mock.drop(1)
    assert step_of(mock).pieces == [(2, b"a")]


def test_it_waits_before_it_has_read_and_before_each_step(monkeypatch):
    naps: list[float] = []
    monkeypatch.setattr(
        "inferd.worker.mock.backend.time", SimpleNamespace(sleep=naps.append)
    )
    mock = started(backend("a", "b", prepare_delay_ms=7, token_delay_ms=50), 1, 2)
    assert naps == [0.007, 0.007]
    step_of(mock)
    assert naps[2:] == [0.05]


@pytest.mark.parametrize("n_tokens", [1, 2, 3])
def test_it_dies_after_the_configured_tokens(deaths, n_tokens):
    mock = started(
        backend("a", "b", "c", die_after_tokens=n_tokens, die_by="SIGSEGV"), 1
    )
    for _ in range(n_tokens):
        step_of(mock)
        assert deaths == []
    step_of(mock)
    assert deaths == [signal.SIGSEGV]


@pytest.mark.parametrize("max_tokens", [2, 1000])
def test_it_dies_in_place_of_its_end_where_both_are_due(deaths, max_tokens):
    mock = started(backend("a", "b", die_after_tokens=2), 1, max_tokens=max_tokens)
    steps = [step_of(mock) for _ in range(3)]
    assert [step.ended for step in steps] == [[], [], []]
    assert deaths == [signal.SIGKILL]


def test_it_lives_if_its_script_ends_before(deaths):
    mock = started(backend("a", "b", die_after_tokens=3), 1)
    assert [bool(step_of(mock).ended) for _ in range(3)] == [False, True, False]
    assert deaths == []


def test_it_dies_before_it_is_ready_if_told_to(deaths):
    reports: list[Loading | CpuVariant] = []
    backend(die_at_load=True, die_by="SIGSTOP").load(reports.append)
    assert deaths == [signal.SIGSTOP]
    assert len(reports) == 1


def test_it_does_not_die_unless_told_to(deaths):
    mock = started(backend("a", "b"), 1)
    step_of(mock)
    step_of(mock)
    assert deaths == []


# --- what a job asks for ----------------------------------------------------------------


def test_a_stop_token_ends_it_before_it_is_said():
    mock = started(backend("a", "b", "c"), 1, stop_token_ids=(9, 1))
    assert step_of(mock) == Step(pieces=[(1, b"a")])
    end = ended(1, 1, stop_token_id=1, end_token_id=1)
    assert step_of(mock) == Step(ended=[end])
    assert not mock.is_busy


def test_a_prompt_of_tokens_is_counted_and_each_token_tells_its_id():
    mock = started(backend("a", "b"), 1, input_tokens=[5, 7], wants_token_ids=True)
    assert step_of(mock) == Step(pieces=[(1, b"a")], token_ids=[(1, 0)])
    [end] = step_of(mock).ended
    assert (end.usage.prompt_tokens, end.end_token_id) == (2, None)


def test_a_stop_token_beyond_the_last_line_changes_nothing():
    mock = started(backend("a"), 1, stop_token_ids=(1,))
    assert step_of(mock) == Step(pieces=[(1, b"a")], ended=[ended(1, 1)])


def test_each_token_tells_its_log_probability_where_it_is_asked_for():
    mock = started(backend("é", "b"), 1, n_alternatives=3)
    started(mock, 2)
    [(ticket, logprob)] = step_of(mock).logprobs
    assert ticket == 1
    assert (logprob.token, logprob.id, logprob.bytes) == ("é", 0, [0xC3, 0xA9])
    assert logprob.logprob == 0
    [alternative] = logprob.top_logprobs
    assert (alternative.token, alternative.id) == ("é", 0)
    [(_, logprob)] = step_of(mock).logprobs
    assert logprob.id == 1


def test_who_wants_progress_is_told_once_that_the_prompt_is_read():
    mock = started(backend("a", "b"), 1, wants_progress=True)
    started(mock, 2)
    assert step_of(mock).prefilled == [(1, 0)]
    assert step_of(mock).prefilled == []


def test_a_prompt_that_is_only_read_is_answered_by_nothing():
    mock = started(backend("a", die_after_tokens=1), 1, prefill_only=True)
    assert step_of(mock) == Step(ended=[ended(1, 0)])


# --- vectors and scores -----------------------------------------------------------------


def test_vectors_are_of_length_one_and_the_same_each_time():
    jobs = [embed_job("a", "b", "a"), embed_job("b")]
    outcomes = [outcome_of(backend(), each) for each in jobs]
    assert all(isinstance(each, Embedded) for each in outcomes)
    (a, b, again), (other,) = (json.loads(each.embeddings) for each in outcomes)
    assert a == again != b == other
    assert [len(each) for each in (a, b)] == [N_EMBD] * 2
    assert math.hypot(*a) == pytest.approx(1)


def test_tokens_have_vectors_of_their_own():
    job = EmbedJob(tokens=[[1, 2], [2, 1], [1, 2]], dimensions=None, task=None)
    one, two, again = json.loads(outcome_of(backend(), job).embeddings)
    assert one == again != two


@pytest.mark.parametrize("dimensions", [1, 7, N_EMBD])
def test_vectors_are_as_long_as_they_are_asked_for(dimensions):
    outcome = outcome_of(backend(), embed_job("a", dimensions=dimensions))
    [vector] = json.loads(outcome.embeddings)
    assert len(vector) == outcome.dimensions == dimensions
    assert math.hypot(*vector) == pytest.approx(1)


def test_vectors_that_it_cannot_make_are_refused():
    with pytest.raises(RefusedError, match=r"dimensions 9 not in \[1, 8\]"):
        backend().prepare(embed_job("a", dimensions=N_EMBD + 1))


def test_scores_are_the_share_of_the_querys_words():
    documents = ["a red fox", "A RED", "nothing", "red red red"]
    outcome = outcome_of(backend(), RerankJob(query="A red fox", documents=documents))
    assert isinstance(outcome, Scored)
    assert outcome.scores == pytest.approx([1, 2 / 3, 0, 1 / 3])


def test_a_query_without_words_scores_nothing():
    outcome = outcome_of(backend(), RerankJob(query=" ", documents=["a", " "]))
    assert outcome.scores == [0, 0]


@pytest.mark.slow
@settings(max_examples=100)
@given(query=st.text(min_size=1), documents=st.lists(st.text(min_size=1), min_size=1))
def test_any_text_has_a_vector_and_a_score(query, documents):
    vectors = json.loads(outcome_of(backend(), embed_job(*documents)).embeddings)
    assert len(vectors) == len(documents)
    scores = outcome_of(backend(), RerankJob(query=query, documents=documents)).scores
    assert len(scores) == len(documents)
    assert all(0 <= score <= 1 for score in scores)


def test_jobs_of_all_kinds_go_side_by_side():
    mock = started(backend("a", "b"), 1)
    mock.start(2, mock.prepare(embed_job("x")))
    mock.start(3, mock.prepare(RerankJob(query="q", documents=["q"])))
    step, embedded, scored = mock.step()
    assert step == Step(pieces=[(1, b"a")])
    assert isinstance(embedded, Embedded)
    assert isinstance(scored, Scored)
    assert (embedded.ticket, scored.ticket) == (2, 3)
    assert mock.is_busy
    assert step_of(mock).ended == [ended(1, 2)]


# --- pauses -----------------------------------------------------------------------------


def test_a_paused_answer_continues_where_it_was():
    mock = started(backend("a", "b", "c"), 1, 2)
    assert step_of(mock).pieces == [(1, b"a"), (2, b"a")]
    mock.pause(1)
    mock.pause(9)
    assert mock.step() == [Paused(ticket=1)]
    assert step_of(mock).pieces == [(2, b"b")]
    mock.resume(1)
    assert step_of(mock).pieces == [(2, b"c"), (1, b"b")]
    assert step_of(mock).ended == [ended(1, 3)]


def test_one_that_is_dropped_while_paused_does_not_go_on():
    mock = started(backend("a", "b"), 1)
    mock.pause(1)
    assert mock.step() == [Paused(ticket=1)]
    mock.drop(1)
    mock.resume(1)
    assert not mock.is_busy
