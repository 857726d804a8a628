from itertools import cycle, islice

from hypothesis import given, strategies as st

from inferd.limits.worker import LOOKUP_TOKENS
from inferd.worker.llama.speculation.lookup import (
    MAX_MATCH_TOKENS,
    MIN_MATCH_TOKENS,
    TokenLookup,
)

TOKENS = st.lists(st.integers(0, 4), max_size=60)


def looked_up(tokens):
    lookup = TokenLookup()
    lookup.extend(tokens)
    return lookup


def after_the_like(tokens):
    """What follows the last tokens where they are latest, tried one place at a time."""
    for n in range(MAX_MATCH_TOKENS, MIN_MATCH_TOKENS - 1, -1):
        for begin in range(len(tokens) - n - 1, -1, -1):
            if tokens[begin : begin + n] == tokens[-n:]:
                return tokens[begin + n :]
    return []


@given(TOKENS, st.integers(0, 10))
def test_a_prediction_followed_the_longest_match(tokens, n):
    guessed = looked_up(tokens).predict(n)
    assert guessed == list(islice(cycle(after_the_like(tokens)), n))


@given(st.lists(TOKENS, max_size=5))
def test_how_the_tokens_came_makes_no_difference(parts):
    whole = [token for part in parts for token in part]
    lookup = TokenLookup()
    for part in parts:
        lookup.predict(3)
        lookup.extend(part)
    assert lookup.predict(8) == looked_up(whole).predict(8)


@given(TOKENS, TOKENS)
def test_likely_tokens_count_for_a_prediction_and_are_not_stored(tokens, likely):
    lookup = looked_up(tokens)
    assert lookup.predict(8, likely) == looked_up(tokens + likely).predict(8)
    assert lookup.predict(8) == looked_up(tokens).predict(8)
    assert len(lookup) == len(tokens)


def test_repeated_text_is_predicted_to_continue():
    assert looked_up([7, 1, 2, 3, 1, 2, 3, 1, 2]).predict(7) == [3, 1, 2, 3, 1, 2, 3]


def test_the_place_most_alike_goes_before_a_later_one():
    assert looked_up([1, 2, 3, 8, 9, 2, 3, 6, 1, 2, 3]).predict(2) == [8, 9]


def test_what_is_new_is_not_guessed():
    assert looked_up([1, 2, 3, 4, 5, 3]).predict(4) == []
    assert TokenLookup().predict(4) == []


def test_only_the_last_tokens_are_searched():
    between = list(range(10, 10 + LOOKUP_TOKENS))
    assert looked_up([1, 2, 3, *between[:-5], 1, 2]).predict(1) == [3]
    assert looked_up([1, 2, 3, *between, 1, 2]).predict(1) == []
