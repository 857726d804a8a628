import numpy as np
from hypothesis import given, settings, strategies as st

from inferd.worker.llama.generate.sampler import BLOCK_TOKENS, top_k_candidates

SEEDS = st.integers(0, 2**32 - 1)
VOCABULARIES = st.integers(1, 40 * BLOCK_TOKENS)


def scores_of(seed, n_vocab):
    """Make scores among which there are equal ones and forbidden ones."""
    random = np.random.default_rng(seed)
    scores = random.integers(-50, 50, n_vocab).astype(np.float32)
    scores[random.random(n_vocab) < 0.1] = -np.inf
    return scores


@settings(max_examples=200)
@given(SEEDS, VOCABULARIES, st.integers(1, 50))
def test_the_likeliest_are_among_those_found(seed, n_vocab, n_wanted):
    scores = scores_of(seed, n_vocab)
    found = top_k_candidates(scores, n_wanted)
    if found is not None:
        best = np.sort(scores)[::-1][:n_wanted]
        assert (np.sort(scores[found])[::-1][:n_wanted] == best).all()


@given(SEEDS, VOCABULARIES, st.integers(1, 50))
def test_nobody_is_found_twice(seed, n_vocab, n_wanted):
    found = top_k_candidates(scores_of(seed, n_vocab), n_wanted)
    if found is not None:
        assert len(set(found.tolist())) == len(found)
        assert (found.min() >= 0, found.max() < n_vocab) == (True, True)


def test_few_are_found_of_many():
    scores = np.random.default_rng(1).random(262_144, np.float32)
    found = top_k_candidates(scores, 40)
    assert found is not None
    assert len(found) < 2 * 40


def test_of_few_there_is_no_shortlist():
    assert top_k_candidates(scores_of(1, 40 * BLOCK_TOKENS), 20) is None


def test_nan_is_found():
    scores = scores_of(1, 100 * BLOCK_TOKENS)
    scores[777] = np.nan
    found = top_k_candidates(scores, 1)
    assert found is not None
    assert 777 in found


def test_impossible_tokens_are_not_found():
    scores = np.full(100 * BLOCK_TOKENS, -np.inf, np.float32)
    assert top_k_candidates(scores, 40) is None
    scores[[5, 70, 6000]] = 0.5
    found = top_k_candidates(scores, 40)
    assert found is not None
    assert found.tolist() == [5, 70, 6000]
