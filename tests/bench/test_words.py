from hypothesis import given, strategies as st

from bench.words import distance, n_word_errors, words_of
from tests.cases import each_case

WORDS = st.lists(st.sampled_from("abc"), max_size=8)


def test_case_and_punctuation_are_no_words():
    assert words_of("It's 'nine' o'clock, Dr. Who!") == [
        *("it's", "'nine'", "o'clock", "dr", "who")
    ]


@each_case(
    ("said", "heard", "n_errors"),
    [
        ("The cat sat.", "the cat sat", 0),
        ("The cat sat.", "The hat sat.", 1),
        ("The cat sat.", "The sat.", 1),
        ("The cat sat.", "The black cat sat.", 1),
        ("The cat sat.", "", 3),
    ],
)
def test_each_word_that_is_wrong_missing_or_too_much_counts(said, heard, n_errors):
    assert n_word_errors(said, heard) == n_errors


@given(WORDS, WORDS, WORDS)
def test_the_distance_is_a_metric(one, other, third):
    assert distance(one, one) == 0
    assert distance(one, other) == distance(other, one)
    assert distance(one, third) <= distance(one, other) + distance(other, third)
    assert (
        abs(len(one) - len(other)) <= distance(one, other) <= max(len(one), len(other))
    )
