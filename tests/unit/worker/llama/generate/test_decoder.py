import threading
import weakref
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pytest

from inferd.backend.job import GenerateJob, Sampling, Structure
from inferd.ipc.worker import Failed, Paused, Step
from inferd.worker.backend import PromptOverflowError
from inferd.worker.llama.generate.chunk_size import ChunkSizer
from inferd.worker.llama.grammar.constraint import ConstraintError
from inferd.worker.llama.model.batch import Batch
from inferd.worker.llama.model.context import LlamaContext
from tests.model.tiny import write_tiny_model
from tests.unit.worker.llama.running import (
    GREEDY,
    answer,
    change_rows,
    collect,
    job,
    load,
    steps,
    take_step,
)

pytestmark = pytest.mark.model

N_CTX = 512
SAMPLED = Sampling(temperature=1, top_p=1, top_k=0, seed=5)


def text_of(backend, text, **options):
    return answer(backend, job(text, **options)).text


def test_an_answer_is_as_long_as_asked_and_counted(backend):
    prepared = backend.prepare(job("hello", max_tokens=5))
    backend.start(7, prepared)
    given = collect(steps(backend))[7]
    assert len(given.text) == 5  # one character a token in this vocabulary
    assert given.end.stop_reason == "length"
    assert given.end.usage.prompt_tokens == prepared.prompt_tokens
    assert given.end.usage.completion_tokens == 5


def test_the_answer_depends_on_the_prompt(backend):
    assert text_of(backend, "hello") != text_of(backend, "goodbye, then")


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_the_same_job_gets_the_same_answer_again(backend, sampling):
    asked = job("hello", sampling=sampling, n_alternatives=2, max_tokens=60)
    first, second = (answer(backend, asked) for _ in range(2))
    assert first == second


def test_sequences_in_one_batch_answer_as_they_do_alone(backend):
    prompts = {1: "first", 2: "the second one", 3: "and a third, which is longer"}
    expected = {ticket: text_of(backend, text) for ticket, text in prompts.items()}
    for ticket, text in prompts.items():
        backend.start(ticket, backend.prepare(job(text)))
    answers = collect(steps(backend))
    assert {ticket: each.text for ticket, each in answers.items()} == expected


def test_one_may_join_while_another_runs(backend):
    expected = {1: text_of(backend, "early"), 2: text_of(backend, "late")}
    backend.start(1, backend.prepare(job("early")))
    head = collect(steps(backend, 5))[1].text
    backend.start(2, backend.prepare(job("late")))
    answers = collect(steps(backend))
    assert {1: head + answers[1].text, 2: answers[2].text} == expected


def test_one_may_take_the_place_of_another_between_two_steps(backend):
    expected = text_of(backend, "late")
    backend.start(1, backend.prepare(job("early")))
    list(steps(backend, 5))
    backend.drop(1)
    backend.start(1, backend.prepare(job("late")))
    assert collect(steps(backend))[1].text == expected


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_nothing_is_held_of_an_answer_that_is_over(backend, is_cancelled):
    prepared = backend.prepare(job("secret"))
    is_held = weakref.ref(prepared)
    backend.start(1, prepared)
    del prepared
    list(steps(backend, 3 if is_cancelled else 10_000))
    backend.drop(1)
    assert not is_held()


def test_a_dropped_sequence_leaves_no_trace_in_its_slot(backend):
    expected = text_of(backend, "clean")
    for ticket in range(10, 20):
        backend.start(ticket, backend.prepare(job("dirt " * ticket)))
        take_step(backend)
        backend.drop(ticket)
    assert not backend.is_busy
    assert text_of(backend, "clean") == expected


# --- how long an answer is ------------------------------------------------------------


@pytest.mark.parametrize("min_tokens", [0, 1])
def test_no_tokens_are_no_work(backend, min_tokens):
    given = answer(backend, job(max_tokens=0, min_tokens=min_tokens, n_alternatives=1))
    assert (given.pieces, given.logprobs) == ([], [])
    assert given.end.stop_reason == "length"
    assert given.end.usage.completion_tokens == 0


def test_an_answer_ends_with_the_context(backend):
    prepared = backend.prepare(job("x" * 400, max_tokens=10_000))
    backend.start(1, prepared)
    end = collect(steps(backend))[1].end
    assert end.stop_reason == "length"
    assert prepared.prompt_tokens + end.usage.completion_tokens == N_CTX


def test_a_prompt_may_fill_the_context_but_for_one_token(backend):
    frame = backend.prepare(job("")).prompt_tokens
    given = answer(backend, job("x" * (N_CTX - 1 - frame)))
    assert given.end.usage.completion_tokens == 1
    with pytest.raises(PromptOverflowError) as caught:
        backend.prepare(job("x" * (N_CTX - frame)))
    assert (caught.value.prompt_tokens, caught.value.n_ctx) == (N_CTX, N_CTX)


def test_there_is_a_piece_for_each_token_even_of_those_without_a_text(backend):
    control = backend._model.tokenize("<|im_start|>")[-1]
    always = msgspec.structs.replace(GREEDY, logit_bias={control: 100.0})
    given = answer(backend, job(max_tokens=4, sampling=always, n_alternatives=1))
    assert given.pieces == [b""] * 4
    assert [each.id for each in given.logprobs] == [control] * 4
    assert given.end.usage.completion_tokens == 4


def test_an_end_token_ends_the_answer_without_a_piece(backend):
    end_token = backend._model.end_tokens[-1]
    ends = msgspec.structs.replace(GREEDY, logit_bias={end_token: 100.0})
    given = answer(backend, job(sampling=ends, n_alternatives=1))
    assert (given.pieces, given.logprobs) == ([], [])
    assert (given.end.stop_reason, given.end.stop_token_id) == ("end", None)
    assert given.end.usage.completion_tokens == 0


def test_a_stop_token_ends_the_answer_without_a_piece_and_is_told(backend):
    whole = answer(backend, job(n_alternatives=1))
    ids = [each.id for each in whole.logprobs]
    stop = ids[5]
    n_before = ids.index(stop)
    given = answer(backend, job(stop_token_ids=(4, stop), n_alternatives=1))
    assert given.pieces == whole.pieces[:n_before]
    assert given.logprobs == whole.logprobs[:n_before]
    assert (given.end.stop_reason, given.end.stop_token_id) == ("end", stop)
    assert given.end.usage.completion_tokens == n_before


def test_a_job_may_stop_at_a_token_that_ends_turns_anyway(backend):
    end_token = backend._model.end_tokens[-1]
    ends = msgspec.structs.replace(GREEDY, logit_bias={end_token: 100.0})
    given = answer(backend, job(sampling=ends, stop_token_ids=(end_token,)))
    assert given.end.stop_token_id == end_token


@pytest.mark.parametrize("n_alternatives", [0, 1])
def test_a_stop_token_ends_no_answer_before_min_tokens(backend, n_alternatives):
    stop = backend._model.tokenize("t")[-1]
    stops = msgspec.structs.replace(GREEDY, logit_bias={stop: 100.0})
    for min_tokens in (1, 7):
        asked = job(
            sampling=stops,
            min_tokens=min_tokens,
            stop_token_ids=(stop,),
            n_alternatives=n_alternatives,
        )
        given = answer(backend, asked)
        assert given.end.usage.completion_tokens == min_tokens
        assert given.end.stop_token_id == stop


def test_an_answer_has_the_tokens_that_it_must_have(backend):
    end_token = backend._model.end_tokens[-1]
    ends = msgspec.structs.replace(GREEDY, logit_bias={end_token: 100.0})
    for min_tokens in (1, 7):
        given = answer(backend, job(sampling=ends, min_tokens=min_tokens))
        assert given.end.usage.completion_tokens == min_tokens
        assert given.end.stop_reason == "end"


# --- log probabilities ----------------------------------------------------------------


def teacher_forced(backend, prompt, ids):
    """Decode a prompt and its answer once more, elsewhere: logits before each token."""
    model = backend._model
    context = LlamaContext(model, n_ctx=N_CTX, n_slots=1, n_batch=N_CTX, n_threads=1)
    batch = Batch(N_CTX)
    batch.add_for_pooling([*prompt, *ids[:-1]], sequence=0)
    assert context.decode(batch.handle) == 0
    rows = range(len(prompt) - 1, len(batch))
    return np.array([context.logits(row, model.n_vocab) for row in rows])


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_log_probabilities_are_those_of_the_model(backend, sampling):
    asked = job("hello", max_tokens=12, sampling=sampling, n_alternatives=20)
    prompt = backend.prepare(asked).tokens
    given = answer(backend, asked).logprobs
    logits = teacher_forced(backend, prompt, [each.id for each in given])
    logits = logits.astype(np.float64)
    expected = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    assert len(given) == 12
    for known, row in zip(given, expected, strict=True):
        assert known.logprob == pytest.approx(row[known.id], abs=2e-3)
        told = [each.logprob for each in known.top_logprobs]
        assert told == pytest.approx(np.sort(row)[::-1][:20], abs=2e-3)


def test_alternatives_come_likeliest_first_and_no_two_are_one(backend):
    told = answer(backend, job(sampling=SAMPLED, n_alternatives=20)).logprobs
    assert len(told) == 24
    for known in told:
        best = known.top_logprobs
        assert all(one.logprob >= other.logprob for one, other in pairwise(best))
        assert len({each.id for each in best}) == 20


def test_the_likeliest_token_is_the_first_of_its_alternatives(backend):
    given = answer(backend, job(n_alternatives=3))
    assert len(given.pieces) == 24
    for known, piece in zip(given.logprobs, given.pieces, strict=True):
        best = known.top_logprobs[0]
        assert (best.id, best.logprob) == (known.id, known.logprob)
        assert bytes(known.bytes) == piece == known.token.encode()


def test_asking_for_log_probabilities_changes_no_answer(backend):
    for sampling in (GREEDY, SAMPLED):
        plain = answer(backend, job(sampling=sampling))
        told = answer(backend, job(sampling=sampling, n_alternatives=1))
        assert told.pieces == plain.pieces
        assert (len(told.logprobs), plain.logprobs) == (24, [])


def test_log_probabilities_are_those_before_any_option(backend):
    plain = answer(backend, job(max_tokens=1, n_alternatives=1)).logprobs[0]
    end_token = backend._model.end_tokens[-1]
    options = msgspec.structs.replace(GREEDY, logit_bias={end_token: 100.0})
    asked = job(max_tokens=1, n_alternatives=20, min_tokens=1, sampling=options)
    told = answer(backend, asked).logprobs[0]
    assert told.top_logprobs[0].logprob == plain.logprob
    assert all(np.isfinite(each.logprob) for each in told.top_logprobs)


# --- reading a prompt -----------------------------------------------------------------


def test_a_prompt_whose_last_token_is_read_alone_is_read_once(backend):
    asked = job("again " * 20, cache="auto", owner=1, max_tokens=8)
    n_prompt = backend.prepare(asked).prompt_tokens
    n_read: list[int] = []
    for _ in range(2):
        backend.start(1, backend.prepare(asked))
        n_read.append(sum(step.n_read for step in steps(backend)))
    assert n_read == [n_prompt, 1]


def test_prefill_only_generates_no_token(backend):
    prepared = backend.prepare(job("x" * 300, prefill_only=True, n_alternatives=1))
    backend.start(1, prepared)
    given = collect(steps(backend))[1]
    assert (given.pieces, given.logprobs) == ([], [])
    assert given.end.stop_reason == "end"
    assert given.end.usage.prompt_tokens == prepared.prompt_tokens
    assert given.end.usage.completion_tokens == 0


def test_a_prompt_is_read_even_if_no_token_may_be_written(backend):
    asked = job("x" * 300, prefill_only=True, max_tokens=0, wants_progress=True)
    prepared = backend.prepare(asked)
    backend.start(1, prepared)
    given = collect(steps(backend))[1]
    assert given.prefilled == [prepared.prompt_tokens]
    assert given.end.stop_reason == "end"


@pytest.fixture
def steady_pace(monkeypatch):
    monkeypatch.setattr(ChunkSizer, "chunk", 64)


def test_the_step_in_which_another_takes_over_is_short(backend, monkeypatch):
    sizes = property(lambda sizer: 20 if sizer.is_awaited else 60)
    monkeypatch.setattr(ChunkSizer, "chunk_alone", sizes)
    asked = job("z" * 300, wants_progress=True, cache="off", max_tokens=2)
    for ticket in (1, 2):
        backend.start(ticket, backend.prepare(asked))
    assert take_step(backend).prefilled == [(1, 30), (2, 30)]
    backend.pause(2)
    paused, step = backend.step()
    assert isinstance(paused, Paused)
    assert step.prefilled == [(1, 50)]
    assert take_step(backend).prefilled == [(1, 110)]
    for ticket in (1, 2):
        backend.drop(ticket)


@pytest.mark.usefixtures("steady_pace")
def test_progress_is_told_after_each_chunk_to_those_who_ask(backend):
    backend.start(1, backend.prepare(job("steady", max_tokens=40)))
    assert take_step(backend).prefilled == []
    prepared = backend.prepare(job("z" * 300, wants_progress=True, max_tokens=2))
    backend.start(2, prepared)
    given = collect(steps(backend))
    n_tokens = prepared.prompt_tokens
    assert given[2].prefilled == [*range(64, n_tokens, 64), n_tokens]
    assert given[1].prefilled == []


@pytest.mark.usefixtures("steady_pace")
def test_every_step_reports_the_tokens_read(backend):
    prepared = backend.prepare(job("z" * 300, max_tokens=3))
    backend.start(1, prepared)
    read = [step.n_read for step in steps(backend)]
    assert sum(read) == prepared.prompt_tokens
    assert all(read[:-2])
    assert read[-2:] == [0, 0]


def test_progress_ends_with_the_step_of_the_first_token(backend):
    prepared = backend.prepare(job(wants_progress=True, max_tokens=2))
    backend.start(1, prepared)
    first, second = steps(backend)
    assert first.prefilled == [(1, prepared.prompt_tokens)]
    assert first.pieces
    assert second.prefilled == []


@pytest.mark.usefixtures("steady_pace")
def test_a_long_prompt_comes_in_chunks_while_another_streams(backend):
    backend.start(1, backend.prepare(job("steady", max_tokens=40)))
    take_step(backend)
    backend.start(2, backend.prepare(job("z" * 450)))
    nine = list(steps(backend, 9))
    writers = [[ticket for ticket, _ in step.pieces] for step in nine]
    assert writers[:7] == [[1]] * 7  # 450 tokens at 64 a step
    assert [1, 2] in writers[7:]
    collect(steps(backend))


# --- interruptions --------------------------------------------------------------------


def test_an_interrupted_prefill_costs_the_others_nothing_but_the_step(
    backend, monkeypatch
):
    expected = text_of(backend, "steady")
    decode = LlamaContext.decode

    def decode_late(context, batch):
        backend.interrupt(2)  # for certain, however threads are scheduled
        return decode(context, batch)

    backend.start(1, backend.prepare(job("steady")))
    head = collect(steps(backend, 4))[1].text
    backend.start(2, backend.prepare(job("y" * 450)))
    monkeypatch.setattr(LlamaContext, "decode", decode_late)
    first = msgspec.structs.replace(take_step(backend), started=[])
    monkeypatch.undo()
    stop = threading.Event()

    def interrupt():
        while not stop.is_set():
            backend.interrupt(2)

    thread = threading.Thread(target=interrupt)
    thread.start()
    interrupted = [first, *steps(backend, 20)]
    stop.set()
    thread.join()
    assert Step() in interrupted, "no step was cut short"
    backend.drop(2)
    head += collect(iter(interrupted))[1].text
    assert head + collect(steps(backend))[1].text == expected


def test_an_interruption_that_comes_too_late_is_harmless(backend):
    expected = text_of(backend, "steady")
    backend.start(1, backend.prepare(job("steady")))
    backend._engine._context.interrupt()
    assert collect(steps(backend))[1].text == expected


def test_no_tokens_may_be_asked_for_after_an_interruption(backend):
    backend.start(1, backend.prepare(job("y" * 400)))
    backend._engine._context.interrupt()
    assert not take_step(backend).n_read
    backend.drop(1)
    assert answer(backend, job(max_tokens=0)).end.stop_reason == "length"


def test_an_interruption_meant_for_a_stream_past_its_prompt_is_ignored(backend):
    backend.start(1, backend.prepare(job("steady")))
    take_step(backend)
    backend.interrupt(1)
    assert take_step(backend).pieces
    backend.drop(1)


@pytest.fixture
def interrupting(monkeypatch):
    """The second job is dropped as soon as any batch is under way."""

    def interrupting(backend):
        decode = LlamaContext.decode

        def interrupted(self, batch):
            backend.interrupt(2)
            return decode(self, batch)

        monkeypatch.setattr(LlamaContext, "decode", interrupted)

    return interrupting


def test_no_decode_is_aborted_that_could_not_be_rolled_back(tiny_mamba, interrupting):
    backend, _ = load(tiny_mamba)
    backend.start(1, backend.prepare(job("steady", max_tokens=40)))
    list(steps(backend, 4))
    backend.start(2, backend.prepare(job("y" * 400, max_tokens=2)))
    interrupting(backend)
    assert 1 in [ticket for ticket, _ in take_step(backend).pieces]
    collect(steps(backend))


def test_a_recurrent_prompt_alone_in_its_batch_is_interrupted(tiny_mamba, interrupting):
    backend, _ = load(tiny_mamba)
    backend.start(2, backend.prepare(job("y" * 400, max_tokens=2)))
    interrupting(backend)
    assert take_step(backend).pieces == []
    assert backend.is_busy
    backend.drop(2)


# --- structures -----------------------------------------------------------------------


def regex(pattern: str, **options: Any) -> GenerateJob:
    return job(structure=Structure(kind="regex", source=pattern), **options)


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_an_answer_has_the_structure_that_was_asked_for(backend, sampling):
    given = answer(backend, regex("yes|no", sampling=sampling))
    assert given.text in (b"yes", b"no")
    assert (given.end.stop_reason, given.end.structure_complete) == ("end", True)


def test_a_structure_leaves_the_choice_to_the_model(backend):
    seeds = [msgspec.structs.replace(SAMPLED, seed=seed) for seed in range(20)]
    found = {answer(backend, regex("[a-h]", sampling=each)).text for each in seeds}
    assert len(found) > 1


def test_an_answer_without_a_structure_says_nothing_of_one(backend):
    assert answer(backend, job(max_tokens=1)).end.structure_complete is None


@pytest.mark.parametrize("max_tokens", [1, 3, 7, 10])
def test_an_answer_that_is_cut_before_its_structure_closes_says_so(backend, max_tokens):
    given = answer(backend, regex("[ab]lighthouses", max_tokens=max_tokens))
    assert len(given.pieces) == given.end.usage.completion_tokens == max_tokens
    assert given.end.stop_reason == "length"
    assert given.end.structure_complete is False


@pytest.mark.parametrize("pattern", ["[ab]", "[ab]c", "[ab]cdef"])
def test_a_structure_that_closes_with_the_last_token_is_whole(backend, pattern):
    n_tokens = len(pattern) - 3
    end = answer(backend, regex(pattern, max_tokens=n_tokens)).end
    assert end.usage.completion_tokens == n_tokens
    assert (end.stop_reason, end.structure_complete) == ("end", True)


def test_forced_text_takes_no_steps_of_its_own(backend):
    backend.start(1, backend.prepare(regex("[ab]lighthouses[cd]")))
    took = list(steps(backend))
    given = collect(iter(took))[1]
    assert given.end.usage.completion_tokens == len(given.text) == 13
    assert len(took) <= 4


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_forced_text_is_the_text_that_would_be_sampled(backend, sampling):
    pattern = "(one|two|three) lighthouses and (four|five) ships"
    at_once = answer(backend, regex(pattern, sampling=GREEDY, max_tokens=60))
    one_by_one = answer(
        backend, regex(pattern, sampling=GREEDY, max_tokens=60, n_alternatives=1)
    )
    assert at_once.text == one_by_one.text
    assert len(one_by_one.logprobs) == len(one_by_one.pieces)


def test_structures_change_nothing_for_those_beside_them(backend):
    expected = text_of(backend, "steady", max_tokens=20)
    backend.start(1, backend.prepare(job("steady", max_tokens=20)))
    backend.start(2, backend.prepare(regex("[ab]lighthouses[cd]keepers")))
    backend.start(3, backend.prepare(regex("[a-z]{5}")))
    given = collect(steps(backend))
    assert given[1].text == expected
    assert given[2].text[1:12] == b"lighthouses"
    assert len(given[3].text) == 5


def test_a_stop_token_ends_an_answer_even_where_it_has_to_follow(backend):
    token = backend._model.tokenize("t")[-1]
    given = answer(backend, regex("[ab]lighthouses", stop_token_ids=(token,)))
    assert given.text[1:] == b"ligh"
    assert given.end.stop_token_id == token
    assert given.end.structure_complete is False


def test_a_stop_token_that_would_close_a_structure_leaves_it_open(backend):
    token = backend._model.tokenize("!")[-1]
    given = answer(backend, regex("[ab]c!", stop_token_ids=(token,)))
    assert given.text[1:] == b"c"
    assert given.end.structure_complete is False


@pytest.mark.parametrize("n_alternatives", [0, 1])
def test_a_forced_stop_token_ends_no_answer_before_min_tokens(backend, n_alternatives):
    token = backend._model.tokenize("t")[-1]
    options = {"stop_token_ids": (token,), "n_alternatives": n_alternatives}
    early = answer(backend, regex("[ab]lighthouses", min_tokens=5, **options))
    assert early.text[1:] == b"ligh"
    late = answer(backend, regex("[ab]lighthouses", min_tokens=6, **options))
    assert late.text[1:] == b"lighthouses"
    assert (late.end.stop_token_id, late.end.structure_complete) == (None, True)


@pytest.mark.parametrize("n_alternatives", [0, 1])
def test_an_allowed_stop_token_is_held_back_until_min_tokens(backend, n_alternatives):
    token = backend._model.tokenize("t")[-1]
    stops = msgspec.structs.replace(GREEDY, logit_bias={token: 100.0})
    given = answer(
        backend,
        regex(
            "[tu]+",
            sampling=stops,
            stop_token_ids=(token,),
            min_tokens=5,
            n_alternatives=n_alternatives,
        ),
    )
    assert given.end.usage.completion_tokens == 5
    assert given.end.stop_token_id == token
    assert token not in [each.id for each in given.logprobs]


def test_a_structure_that_may_go_on_does_so_until_it_is_long_enough(backend):
    given = answer(backend, regex("a+", min_tokens=9, max_tokens=12))
    assert given.text == b"a" * len(given.text)
    assert len(given.text) >= 9


def test_a_structure_that_is_closed_ends_an_answer_that_is_too_short(backend):
    given = answer(backend, regex("ab", min_tokens=9))
    assert given.text == b"ab"
    assert given.end.structure_complete is True


def test_a_failing_grammar_does_not_affect_other_answers(backend, monkeypatch):
    expected = text_of(backend, "steady", max_tokens=5)
    backend.start(1, backend.prepare(job("steady", max_tokens=5)))
    doomed = backend.prepare(regex("[ab]+"))
    monkeypatch.setattr(doomed.sampler._constraint, "mask", fail)
    backend.start(2, doomed)
    outcomes = [outcome for _ in range(5) for outcome in backend.step()]
    reason = "at token 1 of the answer, the grammar is tired"
    assert Failed(ticket=2, reason=reason, by_request=True) in outcomes
    done = [each for each in outcomes if isinstance(each, Step)]
    assert collect(iter(done))[1].text == expected


def fail(_: object) -> None:
    raise ConstraintError("the grammar is tired")


def test_a_failing_grammar_does_not_shift_logprobs_of_others(backend, monkeypatch):
    doomed = backend.prepare(regex("[ab]+", n_alternatives=1))
    monkeypatch.setattr(doomed.sampler, "accept", fail)
    backend.start(1, doomed)
    backend.start(2, backend.prepare(job("steady", max_tokens=5, n_alternatives=1)))
    given = [each for each in backend.step() if isinstance(each, Step)]
    given += steps(backend)
    for step in given:
        assert [ticket for ticket, _ in step.logprobs] == [
            ticket for ticket, _ in step.pieces
        ]
    assert len(collect(iter(given))[2].logprobs) == 5


def test_a_structure_that_becomes_too_much_work_is_the_requests_doing(
    backend, monkeypatch
):
    backend.start(1, backend.prepare(regex("[ab]{20}")))
    before = collect(steps(backend, 5))[1].text
    monkeypatch.setattr("inferd.worker.llama.grammar.constraint.GRAMMAR_STEP_S", -1)
    step, failed = backend.step()
    assert isinstance(step, Step)
    n_written = len(before) + len(step.pieces)
    reason = f"at token {n_written + 1} of the answer, the grammar needs over -1 s for a token"
    assert failed == Failed(ticket=1, reason=reason, by_request=True)
    assert not backend.is_busy


# --- values that are not finite ----------------------------------------------------------------


def test_an_answer_that_is_no_number_fails_and_the_worker_goes_on(tmp_path):
    backend, _ = load(write_tiny_model(tmp_path / "tiny.gguf"))
    expected = text_of(backend, "hello", max_tokens=5)
    token = backend._model.tokenize("~")[-1]
    path = write_tiny_model(tmp_path / "spoilt.gguf")
    spoilt, _ = load(change_rows(path, "token_embd.weight", token, np.nan))
    spoilt.start(1, spoilt.prepare(job("hello")))
    take_step(spoilt)
    spoilt.start(2, spoilt.prepare(job("~")))
    _, *failed = spoilt.step()
    assert {each.ticket for each in failed if isinstance(each, Failed)} == {1, 2}
    assert not spoilt.is_busy
    assert text_of(spoilt, "hello", max_tokens=5) == expected


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_nan_is_never_the_grammars_fault(tmp_path, sampling):
    path = write_tiny_model(tmp_path / "tiny.gguf")
    token = load(path)[0]._model.tokenize("~")[-1]
    spoilt, _ = load(change_rows(path, "token_embd.weight", token, np.nan))
    spoilt.start(1, spoilt.prepare(job("hello")))
    take_step(spoilt)
    structure = Structure(kind="regex", source="[ab]c!")
    spoilt.start(2, spoilt.prepare(job("~", structure=structure, sampling=sampling)))
    _, *failed = spoilt.step()
    reason = "the model's output is not finite"
    assert failed == [Failed(ticket=ticket, reason=reason) for ticket in (2, 1)]
