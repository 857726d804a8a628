"""What the embedded models say, in the test's own process."""

from itertools import pairwise

import msgspec
import numpy as np
import pytest

from inferd.backend.job import Sampling
from inferd.limits.worker import PENALTY_TOKENS
from inferd.worker.llama.backend import LlamaBackend
from inferd.worker.llama.generate.sampler import Sampler
from inferd.worker.llama.generate.sequence import PreparedPrompt
from tests.model.embedded import embedded_path
from tests.unit.worker.llama.running import (
    GREEDY,
    answer,
    collect,
    job,
    load,
    scores,
    steps,
    vectors,
)

pytestmark = [pytest.mark.model, pytest.mark.slow]

QUESTION = "What is 2+2?"
MIN_P = 0.05
TOP_K = 40
SAMPLED = Sampling(temperature=0.8, top_p=0.9, top_k=TOP_K, min_p=MIN_P, seed=3)


@pytest.fixture(scope="module")
def smol(embedded_chat) -> LlamaBackend:
    return load(embedded_chat, n_ctx=512)[0]


class Witness(Sampler):
    """A sampler that remembers what it saw and chose."""

    def __init__(self, model, asked, prompt) -> None:
        super().__init__(model, asked, prompt)
        self.seen: list[tuple[np.ndarray, int]] = []

    def choose(self, context, row, *, n_written) -> int:
        scores = context.logits(row, self._n_vocab).copy()
        token = super().choose(context, row, n_written=n_written)
        self.seen.append((scores, token))
        return token


def watched(backend, asked) -> tuple[PreparedPrompt, Witness]:
    """Run a job; give its prompt and what its sampler saw."""
    prepared = backend.prepare(asked)
    prepared.sampler = Witness(backend._model, asked, prepared.tokens)
    backend.start(1, prepared)
    collect(steps(backend))
    return prepared, prepared.sampler


@pytest.mark.long
@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_the_same_question_gets_the_same_answer_after_those_of_others(smol, sampling):
    asked = job(QUESTION, max_tokens=16, sampling=sampling)
    before = answer(smol, asked)
    answer(smol, job("Write a poem about rain.", max_tokens=6))
    assert answer(smol, asked) == before


def test_the_likeliest_answer_is_right_and_can_be_forbidden(smol):
    assert b"4" in answer(smol, job(QUESTION)).text
    four = {smol._model.tokenize(text)[-1]: -100.0 for text in ("4", " 4")}
    biases = msgspec.structs.replace(GREEDY, logit_bias=four)
    assert b"4" not in answer(smol, job(QUESTION, sampling=biases)).text


def test_it_stops_by_itself_unless_it_must_go_on(smol):
    asked = job("Answer with the single word yes.", max_tokens=40)
    short = answer(smol, asked)
    assert short.end.stop_reason == "end"
    n_tokens = short.end.usage.completion_tokens
    longer = msgspec.structs.replace(asked, min_tokens=n_tokens + 5)
    long = answer(smol, longer)
    assert long.end.usage.completion_tokens >= n_tokens + 5
    assert long.pieces[:n_tokens] == short.pieces


def test_penalties_choose_what_they_should_among_all_its_tokens(smol):
    sampling = msgspec.structs.replace(
        GREEDY, repeat_penalty=1.3, presence_penalty=0.5, frequency_penalty=0.25
    )
    asked = job("Say the word banana ten times.", max_tokens=20, sampling=sampling)
    prepared, witness = watched(smol, asked)
    history = list(prepared.tokens)
    n_changed = 0
    for logits, token in witness.seen:
        counts = np.bincount(history[-PENALTY_TOKENS:], minlength=len(logits))
        lower = np.where(logits > 0, logits / 1.3, logits * 1.3)
        expected = np.where(counts > 0, lower - counts * 0.25 - 0.5, logits)
        assert expected[token] == pytest.approx(expected.max(), abs=1e-3)
        n_changed += token != logits.argmax()
        history.append(token)
    assert n_changed > 3


def test_what_is_drawn_was_among_the_likely(smol):
    _, witness = watched(smol, job("Tell me a story.", sampling=SAMPLED))
    n_unlikeliest = 0
    for logits, token in witness.seen:
        powers = np.exp(logits.astype(np.float64) - logits.max())
        assert powers[token] >= MIN_P * 0.999
        assert (logits > logits[token]).sum() < TOP_K
        n_unlikeliest += token != logits.argmax()
    assert n_unlikeliest > 0


def test_log_probabilities_rank_the_answer_as_it_is_chosen(smol):
    given = answer(smol, job(QUESTION, n_alternatives=5))
    assert given.pieces
    for known, piece in zip(given.logprobs, given.pieces, strict=True):
        told = [each.logprob for each in known.top_logprobs]
        assert all(one >= other for one, other in pairwise(told))
        assert (known.logprob, known.bytes) == (told[0], [*piece])
        assert np.exp(told).sum() <= 1.0001


# --- vectors and scores ---------------------------------------------------------------


def load_embedded(name) -> LlamaBackend:
    return load(embedded_path(name))[0]


def test_packed_texts_get_the_vectors_that_they_get_alone_and_meaning_counts():
    encoder = load_embedded("embed")
    texts = [
        "The cat sits on the mat.",
        "A kitten is resting on a rug.",
        "The CAT scanner is in the basement.",
        "It rained for three days.",
    ]
    packed = vectors(encoder, *texts * 5)
    alone = np.concatenate([vectors(encoder, text) for text in texts] * 5)
    assert (packed * alone).sum(axis=1).min() > 0.9999
    nearness = packed[1:4] @ packed[0]
    assert nearness.argmax() == 0


def test_the_document_that_answers_comes_first_packed_or_alone():
    ranker = load_embedded("rerank")
    query = "how long does it take to get to mars"
    documents = [
        "Mars bars contain caramel and nougat.",
        "It takes eight minutes for light from the Sun to reach the Earth.",
        "A trip to Mars takes about seven months with today's rockets.",
        "Mars is the fourth planet from the Sun.",
    ]
    packed = scores(ranker, query, *documents)
    alone = [scores(ranker, query, document)[0] for document in documents]
    assert np.argmax(packed) == 2
    assert packed == pytest.approx(alone, abs=0.2)
