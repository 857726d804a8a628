import json
from math import ceil

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from msgspec.structs import replace

from inferd.backend.job import EmbedJob, RerankJob
from inferd.dialects.prompt.task_prefixes import task_prefix
from inferd.ipc.worker import Embedded, Failed, Scored, Step
from inferd.limits.protocol import U32_MAX
from inferd.limits.worker import ENCODE_BATCH_SEQUENCES, ENCODE_BATCH_TOKENS
from inferd.worker.backend import LoadError, RefusedError
from tests.model.tiny import write_tiny_bert, write_tiny_model
from tests.unit.worker.llama.running import (
    change_rows,
    embed_job,
    encode_all,
    job,
    load,
    scores,
    vectors,
    vectors_of,
)

pytestmark = pytest.mark.model

TEXTS = [
    "hello",
    "Good morning",
    "a somewhat longer text, with a comma",
    "x",
    "the last of them is the longest; it goes on and on and on, for no reason",
] * 8
POOLINGS = {"mean": 1, "cls": 2, "last": 3}
N_CTX = 512


def one_by_one(backend, texts):
    return np.concatenate([vectors(backend, text) for text in texts])


def cosines(one, other):
    return np.sum(one * other, axis=1)


# --- vectors --------------------------------------------------------------------------


@pytest.mark.parametrize("pooling", POOLINGS)
def test_texts_packed_in_a_batch_get_the_vectors_that_they_get_alone(tmp_path, pooling):
    backend, _ = load(write_tiny_bert(tmp_path / "bert.gguf", pooling=pooling))
    packed = vectors(backend, *TEXTS)
    alone = one_by_one(backend, TEXTS)
    assert cosines(packed, alone).min() > 0.9999
    assert np.abs(packed - alone).max() < 1e-3
    assert cosines(packed[:-1], packed[1:]).max() < 0.999  # they are not all the same


def test_how_tokens_are_pooled_makes_a_difference(tmp_path):
    paths = {
        pooling: write_tiny_bert(tmp_path / f"{pooling}.gguf", pooling=pooling)
        for pooling in POOLINGS
    }
    by_file = {
        pooling: vectors(load(path)[0], "hello, world")[0]
        for pooling, path in paths.items()
    }
    for pooling, number in POOLINGS.items():
        backend, _ = load(paths["mean"], embed_pooling=number)
        overridden = vectors(backend, "hello, world")[0]
        near = {each for each, vector in by_file.items() if overridden @ vector > 0.999}
        assert near == {pooling}


def test_vectors_have_length_one_and_as_many_numbers_as_the_model(encoder):
    found = vectors(encoder, *TEXTS)
    assert found.shape == (len(TEXTS), 64)
    assert np.linalg.norm(found, axis=1) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("n_numbers", [1, 2, 63, 64])
def test_fewer_dimensions_are_the_first_ones_scaled_to_length_one(encoder, n_numbers):
    whole = vectors(encoder, "hello", "world")
    cut = vectors(encoder, "hello", "world", dimensions=n_numbers)
    assert cut.shape == (2, n_numbers)
    assert np.linalg.norm(cut, axis=1) == pytest.approx(1, abs=1e-5)
    lengths = np.linalg.norm(whole[:, :n_numbers], axis=1)
    assert cut == pytest.approx(whole[:, :n_numbers] / lengths[:, None], abs=1e-5)


def test_vectors_travel_as_an_array_of_arrays(encoder):
    encoder.start(1, encoder.prepare(embed_job("hello", "world", dimensions=3)))
    outcome = encode_all(encoder)[1]
    assert isinstance(outcome, Embedded)
    rows = json.loads(outcome.embeddings)
    assert [len(row) for row in rows] == [3, 3]
    assert outcome.dimensions == 3


@pytest.mark.parametrize("n_texts", [1, 16, 17, 40])
def test_vectors_are_told_of_batch_by_batch(encoder, n_texts):
    encoder.start(1, encoder.prepare(embed_job(*["text"] * n_texts, dimensions=3)))
    told = []
    while encoder.is_busy:
        told += encoder.step()
    assert len(told) == ceil(n_texts / ENCODE_BATCH_SEQUENCES)
    assert [each.is_last for each in told] == [False] * (len(told) - 1) + [True]
    rows = json.loads(b"".join(each.embeddings for each in told))
    assert [len(row) for row in rows] == [3] * n_texts


def test_markers_in_a_text_are_text(encoder):
    plain, marked = vectors(encoder, "sep", "[SEP]")
    assert plain @ marked < 0.999
    assert encoder.prepare(embed_job("[SEP]")).prompt_tokens == 2 + len("[SEP]")


def test_a_task_puts_its_prefix_in_front(tmp_path):
    path = write_tiny_model(tmp_path / "nomic.gguf")
    backend, _ = load(path, serves="embed", embed_pooling=1)
    backend._model.architecture = "nomic-bert"
    prefix = task_prefix("nomic-bert", "", "clustering")
    asked, written, plain = (
        vectors(backend, text, task=task)
        for text, task in (("hi", "clustering"), (prefix + "hi", None), ("hi", None))
    )
    assert (asked == written).all()
    assert asked[0] @ plain[0] < 0.999


def test_tokens_of_a_text_with_its_special_ones_have_its_vector(encoder):
    tokens = encoder.prepare(embed_job("hello", "a b")).texts
    job = EmbedJob(tokens=tokens, dimensions=None, task=None)
    prepared = encoder.prepare(job)
    assert prepared.prompt_tokens == sum(map(len, tokens))
    encoder.start(1, prepared)
    found = vectors_of(encode_all(encoder)[1])
    assert (found == vectors(encoder, "hello", "a b")).all()


# --- causal models --------------------------------------------------------------------


@pytest.mark.parametrize("pooling", POOLINGS.values())
def test_a_model_that_writes_can_embed(tiny_model, pooling):
    backend, loaded = load(tiny_model, serves="embed", embed_pooling=pooling)
    able = loaded.capabilities
    assert (able.generate, able.v2, able.embed) == (False, False, True)
    found = vectors(backend, *TEXTS)
    assert np.linalg.norm(found, axis=1) == pytest.approx(1, abs=1e-5)
    alone = one_by_one(backend, TEXTS)
    assert cosines(found, alone).min() > 0.9999
    assert np.abs(found - alone).max() < 2e-3


def test_no_batch_remembers_the_one_before(tiny_model):
    backend, _ = load(tiny_model, serves="embed", embed_pooling=3)
    first = vectors(backend, "hello", "world")
    vectors(backend, *TEXTS)
    assert (vectors(backend, "hello", "world") == first).all()


def test_batches_beyond_the_cells_of_the_cache_find_room(tiny_model):
    backend, _ = load(tiny_model, serves="embed", embed_pooling=3)
    n_batches = 8
    texts = ["y" * (N_CTX - 10)] * n_batches
    assert vectors(backend, *texts).shape == (n_batches, 64)


# --- scores ---------------------------------------------------------------------------

DOCUMENTS = ["an answer", "another one, which is longer", "", "no!", "q?"]


def test_each_document_gets_its_score_in_order(ranker):
    packed = scores(ranker, "q?", *DOCUMENTS)
    alone = [scores(ranker, "q?", document)[0] for document in DOCUMENTS]
    assert packed == pytest.approx(alone, abs=1e-3)
    assert len({round(score, 3) for score in packed}) == len(DOCUMENTS)
    assert scores(ranker, "q?", *DOCUMENTS[::-1]) == pytest.approx(packed[::-1])


def test_a_score_depends_on_the_query_and_on_which_is_which(ranker):
    [straight] = scores(ranker, "one", "two")
    assert straight != pytest.approx(scores(ranker, "three", "two")[0], abs=1e-3)
    assert straight != pytest.approx(scores(ranker, "two", "one")[0], abs=1e-3)


def test_a_pair_is_counted_with_its_markers(ranker):
    prepared = ranker.prepare(RerankJob(query="four", documents=["two", "sixsix"]))
    assert prepared.prompt_tokens == (4 + 3 + 3) + (4 + 6 + 3)


# --- what is refused ------------------------------------------------------------------


def test_the_first_input_over_the_context_is_refused_by_its_place(encoder):
    longest = "x" * (N_CTX - 2)
    assert encoder.prepare(embed_job("hi", longest)).prompt_tokens == 4 + N_CTX
    with pytest.raises(RefusedError) as caught:
        encoder.prepare(embed_job("hi", longest, longest + "x", longest * 2))
    assert str(caught.value) == "input[2] has 513 tokens, the context 512"


def test_the_first_tokens_that_cannot_be_are_refused_by_their_place(encoder):
    n_vocab = encoder._engine._model.n_vocab
    last = n_vocab - 1
    longest = [last] * N_CTX
    job = EmbedJob(tokens=[[0], longest], dimensions=None, task=None)
    assert encoder.prepare(job).prompt_tokens == 1 + N_CTX
    known = f"not in [0, {last}], the model's vocabulary"
    for tokens, text in (
        ([[0], [1, n_vocab, U32_MAX]], f"tokens[1][1] {n_vocab} {known}"),
        ([longest, [*longest, 0]], "tokens[1] has 513 tokens, the context 512"),
        ([[n_vocab]], f"tokens[0][0] {n_vocab} {known}"),
        ([[U32_MAX], [0] * 600], f"tokens[0][0] {U32_MAX} {known}"),
    ):
        with pytest.raises(RefusedError) as caught:
            encoder.prepare(replace(job, tokens=tokens))
        assert str(caught.value) == text


def test_the_first_document_over_the_context_is_refused_by_its_place(ranker):
    longest = "x" * (N_CTX - 3 - len("query"))
    ranker.prepare(RerankJob(query="query", documents=["hi", longest]))
    with pytest.raises(RefusedError) as caught:
        ranker.prepare(RerankJob(query="query", documents=["hi", longest + "x"]))
    assert str(caught.value) == (
        "documents[1] has 513 tokens with the query, the context 512"
    )


def test_a_smaller_context_that_is_configured_counts(tiny_bert):
    backend, loaded = load(tiny_bert, n_ctx=16)
    assert loaded.capabilities.n_ctx == 16
    backend.prepare(embed_job("x" * 14))
    with pytest.raises(RefusedError, match=r"input\[0\] has 17 tokens, the context 16"):
        backend.prepare(embed_job("x" * 15))


def test_dimensions_that_the_model_does_not_have_are_refused(encoder):
    with pytest.raises(RefusedError, match=r"^dimensions 65 not in \[1, 64\]$"):
        encoder.prepare(embed_job("hello", dimensions=65))


def test_an_answer_is_not_this_models_business(encoder):
    with pytest.raises(RefusedError, match="generates no text"):
        encoder.prepare(job())


def test_a_text_without_a_token_is_refused_by_its_place(encoder, monkeypatch):
    monkeypatch.setattr(encoder._model, "tokenize", lambda text, **_: [*text.encode()])
    with pytest.raises(RefusedError, match=r"^input\[1\] has no tokens$"):
        encoder.prepare(embed_job("hello", ""))


# --- taking turns ---------------------------------------------------------------------


@settings(max_examples=15)
@given(
    st.lists(st.lists(st.integers(1, 200), min_size=1, max_size=30), max_size=4),
    st.data(),
)
def test_each_job_gets_its_own_vectors_in_order(loaded_bert, sizes, data):
    texts = [
        [f"{n:x} " * (size // 4 + 1) for size in job] for n, job in enumerate(sizes)
    ]
    # every length of every job has a first token of its own
    for ticket, each in enumerate(texts):
        loaded_bert.start(ticket, loaded_bert.prepare(embed_job(*each)))
    outcomes = encode_all(loaded_bert)
    assert set(outcomes) == set(range(len(texts)))
    if texts:
        ticket = data.draw(st.sampled_from(range(len(texts))))
        index = data.draw(st.sampled_from(range(len(texts[ticket]))))
        expected = vectors(loaded_bert, texts[ticket][index])
        found = vectors_of(outcomes[ticket])
        assert len(found) == len(texts[ticket])
        assert found[[index]] == pytest.approx(expected, abs=1e-3)


def steps_to_end(backend, ticket, *, at_most=20):
    """Count the batches until a job is done."""
    for n_steps in range(1, at_most + 1):
        for outcome in backend.step():
            if outcome.ticket == ticket and getattr(outcome, "is_last", True):
                return n_steps
    raise AssertionError(f"job {ticket} is not done after {at_most} batches")


def drop_all(backend, *tickets):
    for ticket in tickets:
        backend.drop(ticket)


def test_one_text_does_not_wait_for_a_thousand_that_came_earlier(encoder):
    encoder.start(1, encoder.prepare(embed_job(*["many"] * 1000)))
    encoder.step()
    encoder.start(2, encoder.prepare(embed_job("one")))
    assert steps_to_end(encoder, 2) == 1
    drop_all(encoder, 1)


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (1, 2, 0)])
def test_a_long_text_does_not_wait_for_many_short_ones(encoder, order):
    texts = [["x" * (N_CTX - 2)], ["many"] * 1000, ["more"] * 1000]
    for ticket in order:
        encoder.start(ticket, encoder.prepare(embed_job(*texts[ticket])))
    assert steps_to_end(encoder, 0) <= 2
    drop_all(encoder, 1, 2)


def test_a_batch_takes_as_many_texts_as_fit(encoder):
    n_texts = 100
    encoder.start(1, encoder.prepare(embed_job(*["short"] * n_texts)))
    assert steps_to_end(encoder, 1) == ceil(n_texts / ENCODE_BATCH_SEQUENCES)
    long = embed_job(*["x" * 198] * 10)  # two of them fit
    encoder.start(1, encoder.prepare(long))
    assert steps_to_end(encoder, 1) == 10 / (ENCODE_BATCH_TOKENS // 200)


def test_a_batch_without_other_results_reports_the_tokens_read(ranker):
    documents = ["document"] * (ENCODE_BATCH_SEQUENCES + 1)
    ranker.start(1, ranker.prepare(RerankJob(query="q", documents=documents)))
    [first], [last] = ranker.step(), ranker.step()
    assert isinstance(first, Step)
    assert first.n_read >= ENCODE_BATCH_SEQUENCES
    assert isinstance(last, Scored)


# --- leaving in the middle ------------------------------------------------------------


def test_a_dropped_job_does_not_affect_other_jobs(encoder):
    expected = vectors(encoder, *TEXTS)
    encoder.start(1, encoder.prepare(embed_job(*["noise"] * 200)))
    encoder.start(2, encoder.prepare(embed_job(*TEXTS)))
    earlier = {each.ticket: each for each in encoder.step()}
    encoder.drop(1)
    encoder.drop(1)
    outcomes = encode_all(encoder, {2: earlier[2]})
    assert set(outcomes) == {2}
    assert vectors_of(outcomes[2]) == pytest.approx(expected, abs=1e-3)


def test_the_only_job_in_a_batch_can_be_interrupted(encoder, monkeypatch):
    expected = vectors(encoder, *TEXTS)
    encoder.start(1, encoder.prepare(embed_job("x" * (N_CTX - 2))))
    context = encoder._engine._context
    decode = context.decode

    def interrupted(batch):
        encoder.interrupt(1)  # as the reading thread may, any time
        return decode(batch)

    with monkeypatch.context() as patch:
        patch.setattr(context, "decode", interrupted)
        outcomes = [encoder.step()]
    assert [] in outcomes, "no batch was cut short"
    encoder.drop(1)
    assert vectors(encoder, *TEXTS) == pytest.approx(expected, abs=1e-5)


def test_a_batch_with_others_in_it_is_not_interrupted(encoder):
    for ticket in (1, 2):
        encoder.start(ticket, encoder.prepare(embed_job("hello")))
    encoder._engine._in_batch = frozenset({1, 2})
    encoder.interrupt(1)
    assert {outcome.ticket for outcome in encoder.step()} == {1, 2}


def test_an_interruption_that_comes_too_late_is_harmless(encoder):
    expected = vectors(encoder, "hello")
    encoder.start(1, encoder.prepare(embed_job("hello")))
    encoder._engine._context.interrupt()
    assert encoder.step() == []
    assert vectors_of(encode_all(encoder)[1]) == pytest.approx(expected, abs=1e-6)


# --- values that are not finite ----------------------------------------------------------------


@pytest.fixture
def spoilt(tmp_path):
    """A model that makes no number of a text with a "z" in it."""
    backend, _ = load(write_tiny_bert(tmp_path / "bert.gguf"))
    token = backend._model.tokenize("z")[1]
    path = write_tiny_bert(tmp_path / "spoilt.gguf")
    return load(change_rows(path, "token_embd.weight", token, np.nan))[0]


def test_nan_fails_the_job(spoilt):
    spoilt.start(1, spoilt.prepare(embed_job("hello", "z")))
    outcome = encode_all(spoilt)[1]
    assert outcome == Failed(ticket=1, reason="the model's output is not finite")
    assert np.isfinite(vectors(spoilt, "hello")).all()


def test_nan_fails_no_other_job(spoilt):
    expected = vectors(spoilt, *TEXTS)
    spoilt.start(1, spoilt.prepare(embed_job("hello", "z", "world")))
    spoilt.start(2, spoilt.prepare(embed_job(*TEXTS)))
    outcomes = encode_all(spoilt)
    assert isinstance(outcomes[1], Failed)
    assert vectors_of(outcomes[2]) == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("pooling", ["mean", "rank"])
def test_a_model_that_gives_no_numbers_at_all_is_not_loaded(tmp_path, pooling):
    path = write_tiny_bert(tmp_path / "bert.gguf", pooling=pooling)
    change_rows(path, "token_embd.weight", slice(None), np.nan)
    with pytest.raises(LoadError, match="self-test failed: the result is not finite"):
        load(path)


# --- what a model is for --------------------------------------------------------------


def test_the_file_says_what_a_model_is_for(tiny_bert, tiny_ranker):
    for path, is_ranker in ((tiny_bert, False), (tiny_ranker, True)):
        able = load(path)[1].capabilities
        assert (able.embed, able.rerank) == (not is_ranker, is_ranker)
        assert not able.generate
        assert not able.v2
        assert (able.n_ctx, able.n_embd) == (N_CTX, 64)


def test_a_rerank_model_can_be_configured_to_embed(tiny_ranker, tiny_bert):
    backend, loaded = load(tiny_ranker, serves="embed", embed_pooling=1)
    assert loaded.capabilities.embed
    expected = vectors(load(tiny_bert)[0], "hello")
    assert vectors(backend, "hello") == pytest.approx(expected, abs=1e-5)


def test_a_model_without_a_head_does_not_rank(tiny_model, tiny_bert):
    for path in (tiny_model, tiny_bert):
        with pytest.raises(LoadError, match="the model has no head for scores"):
            load(path, serves="rerank")


@pytest.mark.parametrize("pooling", [None, 4])
def test_without_a_pooling_that_gives_vectors_nothing_embeds(tiny_model, pooling):
    with pytest.raises(LoadError, match=rf"pooling {pooling or 0}, which gives no vec"):
        load(tiny_model, serves="embed", embed_pooling=pooling)


@pytest.mark.parametrize("pooling", [1, 2, 3])
def test_without_a_pooling_that_gives_scores_nothing_ranks(tiny_ranker, pooling):
    with pytest.raises(LoadError, match=rf"pooling {pooling}, which gives no scores"):
        load(tiny_ranker, serves="rerank", embed_pooling=pooling)


def test_a_reranker_may_be_called_by_its_name(tiny_ranker, ranker):
    backend, _ = load(tiny_ranker, serves="rerank")
    assert scores(backend, "q?", *DOCUMENTS) == scores(ranker, "q?", *DOCUMENTS)


def test_texts_of_a_model_with_a_long_context_are_bounded_by_default(tmp_path):
    path = write_tiny_bert(tmp_path / "long.gguf", n_ctx=10_000)
    assert load(path)[1].capabilities.n_ctx == 8192
    assert load(path, n_ctx=20_000)[1].capabilities.n_ctx == 10_000
