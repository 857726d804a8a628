from collections import Counter

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from inferd.backend.job import GenerateJob, Sampling
from inferd.limits.protocol import DEFAULT_TEMPERATURE, DEFAULT_TOP_K, DEFAULT_TOP_P
from inferd.limits.worker import PENALTY_TOKENS
from inferd.worker.backend import RefusedError
from inferd.worker.llama.generate.sampler import Sampler, log_probabilities
from inferd.worker.llama.model.batch import Batch
from inferd.worker.llama.model.context import LlamaContext
from tests.cases import each_case
from tests.model.tiny import write_tiny_model
from tests.unit.worker.llama.running import GREEDY, answer, job, load

pytestmark = pytest.mark.model

PLAIN = Sampling(temperature=1, top_p=1, top_k=0, seed=1, min_p=0)
OPEN = Sampling(temperature=None, top_p=None, top_k=None, seed=1)
N_DRAWS = 2000


class Table:
    """A place to put scores where samplers look for them."""

    def __init__(self, model) -> None:
        self.model = model
        self._context = LlamaContext(model, n_ctx=32, n_slots=1, n_batch=8, n_threads=1)
        batch = Batch(8)
        batch.add([1], at=0, sequence=0, n_logits=1)
        assert self._context.decode(batch.handle) == 0
        self._logits = self._context.logits(0, model.n_vocab)

    def sampler(self, sampling, *, prompt=(), **fields) -> Sampler:
        asked: GenerateJob = job(sampling=sampling, **fields)
        return Sampler(self.model, asked, list(prompt))

    def choose(self, sampler, scores, *, n_written=0) -> int:
        self._logits[:] = scores
        return int(sampler.choose(self._context, 0, n_written=n_written))

    def draw(self, sampling, scores) -> Counter[int]:
        sampler = self.sampler(sampling)
        return Counter(self.choose(sampler, scores) for _ in range(N_DRAWS))


@pytest.fixture(scope="module")
def table(loaded) -> Table:
    return Table(loaded._model)


def likelihoods(table, *likely):
    """Make scores of these probabilities for the first tokens, and of none for others."""
    scores = np.full(table.model.n_vocab, -np.inf)
    scores[: len(likely)] = np.log(likely)
    return scores


def random_scores(seed, n_vocab):
    return np.random.default_rng(seed).normal(0, 3, n_vocab).astype(np.float32)


# --- drawing --------------------------------------------------------------------------

SHARES = (0.5, 0.25, 0.15, 0.1)


@pytest.mark.parametrize("temperature", [0.5, 1, 2])
def test_tokens_are_drawn_as_often_as_they_are_likely(table, temperature):
    sampling = msgspec.structs.replace(PLAIN, temperature=temperature)
    drawn = table.draw(sampling, likelihoods(table, *SHARES))
    powers = np.array(SHARES) ** (1 / temperature)
    expected = N_DRAWS * powers / powers.sum()
    found = [drawn[token] for token in range(len(SHARES))]
    assert found == pytest.approx(expected, abs=4 * np.sqrt(N_DRAWS) / 2)


@each_case(("top_k", "n_left"), [(1, 1), (2, 2), (3, 3), (0, 4), (64, 4)])
def test_top_k_keeps_so_many_and_zero_keeps_all(table, top_k, n_left):
    sampling = msgspec.structs.replace(PLAIN, top_k=top_k)
    drawn = table.draw(sampling, likelihoods(table, *SHARES))
    assert set(drawn) == set(range(n_left))


def test_top_k_zero_keeps_more_than_the_default(table):
    flat = np.zeros(table.model.n_vocab)
    all_kept = table.draw(msgspec.structs.replace(PLAIN, top_k=0), flat)
    some_kept = table.draw(msgspec.structs.replace(PLAIN, top_k=DEFAULT_TOP_K), flat)
    assert (len(some_kept), len(all_kept) > 300) == (DEFAULT_TOP_K, True)


@each_case(
    ("top_p", "n_left"), [(1e-6, 1), (0.4, 1), (0.6, 2), (0.8, 3), (0.95, 4), (1, 4)]
)
def test_top_p_keeps_the_likeliest_of_this_total(table, top_p, n_left):
    sampling = msgspec.structs.replace(PLAIN, top_p=top_p)
    drawn = table.draw(sampling, likelihoods(table, *SHARES))
    assert set(drawn) == set(range(n_left))


@each_case(
    ("min_p", "n_left"), [(0, 4), (0.19, 4), (0.21, 3), (0.4, 2), (0.6, 1), (1, 1)]
)
def test_min_p_keeps_what_is_this_likely_beside_the_likeliest(table, min_p, n_left):
    sampling = msgspec.structs.replace(PLAIN, min_p=min_p)
    drawn = table.draw(sampling, likelihoods(table, *SHARES))
    assert set(drawn) == set(range(n_left))


def test_min_p_applies_before_the_temperature(table):
    sampling = msgspec.structs.replace(PLAIN, min_p=0.4, temperature=2)
    assert set(table.draw(sampling, likelihoods(table, *SHARES))) == {0, 1}


def test_a_seed_gives_the_same_tokens_again_and_another_others(table):
    flat = np.zeros(table.model.n_vocab)

    def drawn(seed):
        sampler = table.sampler(msgspec.structs.replace(PLAIN, seed=seed))
        return tuple(table.choose(sampler, flat) for _ in range(20))

    seeds = (0, 1, 2, 2**31, 2**32 - 2)
    assert [drawn(seed) for seed in seeds] == [drawn(seed) for seed in seeds]
    assert len({drawn(seed) for seed in seeds}) == len(seeds)


@pytest.mark.parametrize("top_k", [1, 2])
def test_a_shortlist_changes_no_choice(table, top_k):
    short = msgspec.structs.replace(PLAIN, top_k=top_k, temperature=5)
    whole = msgspec.structs.replace(short, logit_bias={7: 0.0})  # reads all scores
    samplers = [table.sampler(each) for each in (short, whole)]
    drawn = set()
    for seed in range(30):
        scores = random_scores(seed, table.model.n_vocab)
        chosen = {table.choose(sampler, scores) for sampler in samplers}
        assert len(chosen) == 1
        drawn |= {int((scores > scores[each]).sum()) for each in chosen}
    assert drawn == set(range(top_k))


def test_a_bias_applies_before_top_k(table):
    scores = random_scores(0, table.model.n_vocab)
    worst = int(scores.argmin())
    sampling = msgspec.structs.replace(PLAIN, top_k=1, logit_bias={worst: 100.0})
    assert table.choose(table.sampler(sampling), scores) == worst


# --- taking the likeliest -------------------------------------------------------------


@settings(max_examples=50)
@given(seed=st.integers(0, 2**32 - 1), n_levels=st.integers(1, 5))
def test_temperature_zero_takes_the_same_token_with_and_without_a_chain(
    table, seed, n_levels
):
    n_vocab = table.model.n_vocab
    scores = np.random.default_rng(seed).integers(0, n_levels, n_vocab)  # many ties
    chained = msgspec.structs.replace(GREEDY, logit_bias={7: 0.0})
    found = {table.choose(table.sampler(each), scores) for each in (GREEDY, chained)}
    assert found == {int(scores.argmax())}


def test_temperature_zero_needs_no_seed_and_heeds_no_cut(table):
    scores = random_scores(0, table.model.n_vocab)
    others = [
        msgspec.structs.replace(GREEDY, **changed)
        for changed in ({"seed": 9}, {"top_k": 1}, {"top_p": 0.1}, {"min_p": 1})
    ]
    for sampling in (GREEDY, *others):
        assert table.choose(table.sampler(sampling), scores) == scores.argmax()


# --- biases ---------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0, 1])
def test_a_bias_forces_a_token_or_forbids_it(table, temperature):
    scores = random_scores(0, table.model.n_vocab)
    best, second = (int(each) for each in np.argsort(-scores)[:2])
    worst = int(scores.argmin())
    plain = msgspec.structs.replace(PLAIN, temperature=temperature)
    forced = msgspec.structs.replace(plain, logit_bias={worst: 100.0})
    assert set(table.draw(forced, scores)) == {worst}
    forbidden = msgspec.structs.replace(plain, logit_bias={best: -100.0})
    drawn = table.draw(forbidden, scores)
    assert best not in drawn
    assert drawn.most_common(1)[0][0] == second


def test_biases_are_added_to_the_scores(table):
    scores = likelihoods(table, *SHARES)
    biases = {0: -1.0, 3: float(np.log(5)), 9: 100.0}  # of nothing stays nothing
    shares = np.array(SHARES) * [np.exp(-1), 1, 1, 5]
    drawn = table.draw(msgspec.structs.replace(PLAIN, logit_bias=biases), scores)
    found = [drawn[token] for token in range(4)]
    assert sum(found) == N_DRAWS
    expected = N_DRAWS * shares / shares.sum()
    assert found == pytest.approx(expected, abs=4 * np.sqrt(N_DRAWS) / 2)


# --- penalties ------------------------------------------------------------------------

PENALTIES = st.fixed_dictionaries(
    {
        "repeat_penalty": st.floats(0.125, 2, width=32),
        "presence_penalty": st.floats(-2, 2, width=32),
        "frequency_penalty": st.floats(-2, 2, width=32),
    }
)


def penalised(scores, last_tokens, penalties):
    """Work out what the penalties make of scores."""
    counts = np.bincount(last_tokens, minlength=len(scores))
    repeat = np.where(
        scores > 0,
        scores / penalties["repeat_penalty"],
        scores * penalties["repeat_penalty"],
    )
    lower = counts * penalties["frequency_penalty"] + penalties["presence_penalty"]
    return np.where(counts > 0, repeat - lower, scores)


@settings(max_examples=40)
@given(
    penalties=PENALTIES,
    seed=st.integers(0, 2**32 - 1),
    prompt=st.lists(st.integers(0, 8), max_size=2 * PENALTY_TOKENS),
)
def test_the_choice_is_the_likeliest_after_all_penalties(
    table, penalties, seed, prompt
):
    sampling = msgspec.structs.replace(GREEDY, **penalties)
    sampler = table.sampler(sampling, prompt=prompt)
    history = list(prompt)
    for number in range(8):
        scores = np.full(table.model.n_vocab, -50, np.float32)
        scores[:9] = random_scores([seed, number], 9)
        token = table.choose(sampler, scores)
        expected = penalised(scores, history[-PENALTY_TOKENS:], penalties)
        assert expected[token] == pytest.approx(expected.max(), abs=1e-4)
        history.append(token)


@pytest.mark.parametrize(
    "penalty",
    [{"repeat_penalty": 2.0}, {"presence_penalty": 2.0}, {"frequency_penalty": 2.0}],
)
def test_each_penalty_alone_changes_the_choice(table, penalty):
    scores = np.full(table.model.n_vocab, -50)
    scores[[5, 6]] = 4, 3
    assert table.choose(table.sampler(GREEDY, prompt=[5]), scores) == 5
    sampling = msgspec.structs.replace(GREEDY, **penalty)
    assert table.choose(table.sampler(sampling, prompt=[]), scores) == 5
    sampler = table.sampler(sampling, prompt=[5])
    assert table.choose(sampler, scores) == 6
    assert table.choose(sampler, scores) == 5  # now both have been there


def test_tokens_before_the_last_ones_cost_nothing(table):
    scores = np.zeros(table.model.n_vocab)
    scores[[5, 6]] = 2.0, 1.5
    sampling = msgspec.structs.replace(GREEDY, presence_penalty=2.0)
    for n_between, expected in ((PENALTY_TOKENS - 1, 6), (PENALTY_TOKENS, 5)):
        prompt = [5, *[9] * n_between]
        assert table.choose(table.sampler(sampling, prompt=prompt), scores) == expected


def test_penalties_make_an_answer_less_repetitive(backend):
    plain = answer(backend, job(max_tokens=60)).text
    sampling = msgspec.structs.replace(GREEDY, presence_penalty=2.0)
    varied = answer(backend, job(max_tokens=60, sampling=sampling)).text
    assert len(set(varied)) > len(set(plain))
    assert len(set(varied[:40])) == 40  # all of them, while there are any left


# --- the first tokens -----------------------------------------------------------------


@pytest.mark.parametrize("sampling", [GREEDY, PLAIN], ids=["greedy", "sampled"])
def test_no_end_token_is_chosen_before_min_tokens(table, sampling):
    ends = table.model.end_tokens
    assert ends
    scores = np.zeros(table.model.n_vocab)
    scores[[*ends]] = 30.0
    scores[9] = 20.0
    sampler = table.sampler(sampling, min_tokens=2)
    chosen = [table.choose(sampler, scores, n_written=n) for n in range(4)]
    assert chosen[:2] == [9, 9]
    assert {*chosen[2:]} <= {*ends}


@pytest.mark.parametrize("sampling", [GREEDY, PLAIN], ids=["greedy", "sampled"])
def test_no_stop_token_is_chosen_before_min_tokens(table, sampling):
    scores = np.zeros(table.model.n_vocab)
    scores[[7, 8]] = 30.0
    scores[9] = 20.0
    sampler = table.sampler(sampling, min_tokens=2, stop_token_ids=(7, 8))
    chosen = [table.choose(sampler, scores, n_written=n) for n in range(4)]
    assert chosen[:2] == [9, 9]
    assert {*chosen[2:]} <= {7, 8}


def test_no_bias_ends_an_answer_before_min_tokens(table):
    [*_, end] = table.model.end_tokens
    sampling = msgspec.structs.replace(GREEDY, logit_bias={end: 100.0})
    sampler = table.sampler(sampling, min_tokens=1)
    scores = random_scores(0, table.model.n_vocab)
    assert table.choose(sampler, scores) != end
    assert table.choose(sampler, scores, n_written=1) == end


# --- what a model recommends ----------------------------------------------------------


def first_texts(backend, sampling, n_seeds=6):
    """Give the answers of different seeds."""
    seeds = (msgspec.structs.replace(sampling, seed=seed) for seed in range(n_seeds))
    return {answer(backend, job(max_tokens=8, sampling=each)).text for each in seeds}


@pytest.mark.parametrize(
    "recommended",
    [{"temp": 0.0}, {"top_k": 1.0}, {"top_p": 1e-6}, {"min_p": 1.0}],
    ids=lambda recommended: next(iter(recommended)),
)
def test_a_models_recommendations_apply_unless_the_job_sets_options(
    tmp_path, recommended
):
    path = write_tiny_model(tmp_path / "picky.gguf", recommended=recommended)
    backend, _ = load(path)
    assert first_texts(backend, OPEN) == {answer(backend, job(max_tokens=8)).text}
    assert len(first_texts(backend, PLAIN)) > 1


@pytest.mark.parametrize("nonsense", [float("nan"), float("inf"), "warm", ""])
def test_a_recommendation_that_is_not_finite_is_ignored(tmp_path, nonsense):
    options = ("temp", "top_k", "top_p", "min_p")
    path = write_tiny_model(
        tmp_path / "odd.gguf", recommended=dict.fromkeys(options, nonsense)
    )
    backend, _ = load(path)
    asked = Sampling(
        temperature=DEFAULT_TEMPERATURE,
        top_p=DEFAULT_TOP_P,
        top_k=DEFAULT_TOP_K,
        min_p=0,
        seed=1,
    )
    assert first_texts(backend, OPEN) == first_texts(backend, asked)


def test_without_a_recommendation_the_defaults_of_the_wire_count(table):
    # sorted, so that top-k keeps 64, of which top-p keeps 61
    kept = table.draw(OPEN, np.linspace(0, -0.001, table.model.n_vocab))
    assert max(kept) == np.ceil(DEFAULT_TOP_K * DEFAULT_TOP_P) - 1


# --- tokens that are none -------------------------------------------------------------


def test_tokens_that_the_model_does_not_have_are_refused_by_name(table):
    n_vocab = table.model.n_vocab
    allowed = rf"\[0, {n_vocab - 1}\]$"
    with pytest.raises(RefusedError, match=rf"^logit_bias token {n_vocab} not in "):
        table.sampler(msgspec.structs.replace(GREEDY, logit_bias={n_vocab: 1.0}))
    with pytest.raises(RefusedError, match=rf"^stop_token_ids {n_vocab} not in "):
        table.sampler(GREEDY, stop_token_ids=(n_vocab,))
    with pytest.raises(RefusedError, match=allowed):
        table.sampler(GREEDY, stop_token_ids=(0, 2**32 - 1))


def test_the_last_token_of_the_model_is_one(table):
    last = table.model.n_vocab - 1
    sampling = msgspec.structs.replace(GREEDY, logit_bias={last: 100.0})
    sampler = table.sampler(sampling, stop_token_ids=(last,))
    assert table.choose(sampler, np.zeros(table.model.n_vocab)) == last


# --- log probabilities ----------------------------------------------------------------


@settings(max_examples=50)
@given(seed=st.integers(0, 2**32 - 1), scale=st.sampled_from([0, 1, 30, 1e4]))
def test_log_probabilities_add_up_to_certainty(seed, scale):
    logits = (random_scores(seed, 300) * scale).astype(np.float32)
    before = logits.copy()
    known = log_probabilities(logits)
    assert np.exp(known.astype(np.float64)).sum() == pytest.approx(1, abs=1e-5)
    assert (known <= 0).all()
    assert known - known.max() == pytest.approx(logits - logits.max(), rel=1e-3)
    assert (logits == before).all()
