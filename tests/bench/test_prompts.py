import pytest
from hypothesis import given, strategies as st

from bench.prompts import Lengths, measured_lengths, story, words


def test_a_text_is_the_same_for_the_same_seed():
    assert words(9, 1) == words(9, 1) != words(9, 2)


@pytest.mark.parametrize("ask", [story, lambda seed: Lengths().text(50, seed)])
def test_no_two_prompts_begin_alike(ask):
    assert len({ask(seed).split()[0] for seed in range(100)}) == 100


@given(st.floats(1, 9), st.integers(0, 60))
def test_a_prompt_has_as_many_tokens_as_it_should(per_word, around):
    def n_tokens_of(text):
        return round(per_word * len(text.split()) + around)

    text = measured_lengths(n_tokens_of).text(400, 7)
    assert n_tokens_of(text) == pytest.approx(400, abs=20 + per_word)


def test_a_server_that_does_not_count_is_taken_to_see_words():
    assert measured_lengths(lambda _: 0) == Lengths()
