from itertools import cycle, islice

from hypothesis import given, strategies as st

from inferd.worker.limits import LOOKUP_TOKENS
from inferd.worker.llama.lookup import LONGEST, SHORTEST, Lookup

TOKENS = st.lists(st.integers(0, 4), max_size=60)


def looked_up(tokens):
    lookup = Lookup()
    lookup.extend(tokens)
    return lookup


def after_the_like(tokens):
    """What follows the last tokens where they are latest, tried one place at a time."""
    for n in range(LONGEST, SHORTEST - 1, -1):
        for begin in range(len(tokens) - n - 1, -1, -1):
            if tokens[begin : begin + n] == tokens[-n:]:
                return tokens[begin + n :]
    return []


@given(TOKENS, st.integers(0, 10))
def test_what_is_guessed_came_after_the_like_of_the_end(tokens, n):
    guessed = looked_up(tokens).guess(n)
    assert guessed == list(islice(cycle(after_the_like(tokens)), n))


@given(st.lists(TOKENS, max_size=5))
def test_how_the_tokens_came_makes_no_difference(parts):
    whole = [token for part in parts for token in part]
    lookup = Lookup()
    for part in parts:
        lookup.guess(3)
        lookup.extend(part)
    assert lookup.guess(8) == looked_up(whole).guess(8)


@given(TOKENS, TOKENS)
def test_what_is_likely_counts_for_the_guess_and_is_not_kept(tokens, likely):
    lookup = looked_up(tokens)
    assert lookup.guess(8, likely) == looked_up(tokens + likely).guess(8)
    assert lookup.guess(8) == looked_up(tokens).guess(8)
    assert len(lookup) == len(tokens)


def test_what_repeats_itself_is_guessed_to_go_on():
    assert looked_up([7, 1, 2, 3, 1, 2, 3, 1, 2]).guess(7) == [3, 1, 2, 3, 1, 2, 3]


def test_the_place_most_alike_goes_before_a_later_one():
    assert looked_up([1, 2, 3, 8, 9, 2, 3, 6, 1, 2, 3]).guess(2) == [8, 9]


def test_what_is_new_is_not_guessed():
    assert looked_up([1, 2, 3, 4, 5, 3]).guess(4) == []
    assert Lookup().guess(4) == []


def test_what_is_long_ago_is_not_looked_through():
    between = list(range(10, 10 + LOOKUP_TOKENS))
    assert looked_up([1, 2, 3, *between[:-5], 1, 2]).guess(1) == [3]
    assert looked_up([1, 2, 3, *between, 1, 2]).guess(1) == []
