import string
from itertools import product

import pytest
from hypothesis import example, given, settings, strategies as st

from inferd.output.matcher import PhraseAutomaton, PhraseMatcher
from tests.cases import each_case
from tests.unit.output.oracle import settled, split, whole

WORDS = st.text("ab", max_size=6) | st.text("abc", max_size=6)
PHRASES = st.lists(WORDS.filter(bool), max_size=4)
TEXTS = st.text("ab", max_size=20) | st.text("abc", max_size=20)

TRICKY = [
    ["ab", "abb"],
    ["abba", "bb"],
    ["aab", "ab", "b"],
    ["ababb", "bab"],
    ["aaab", "aa", "baa"],
    ["bbabb", "ab", "abab"],
]


class CountingTree(PhraseAutomaton):
    """Counts how often it was asked."""

    n_reads = 0

    def read(self, node: int, text: str, at: int) -> tuple[int, int]:
        self.n_reads += 1
        return super().read(node, text, at)


def assert_certain_is_given(phrases, text):
    finder = PhraseMatcher(PhraseAutomaton(phrases))
    sent = ""
    for size in range(1, len(text) + 1):
        sent += finder.feed(text[size - 1])
        assert (sent, finder.found) == settled(phrases, text[:size])
        if finder.found is not None:
            return
    sent += finder.finish()
    assert (sent, finder.found) == whole(phrases, text)


@settings(max_examples=60)
@given(PHRASES, TEXTS)
@example(["abcd", "bc"], "abcx")
@example(["ab", "abc"], "abab")
@example(["aab", "ab"], "aaab")
@example(["abcde", "bcd", "c"], "abcdx")
def test_after_each_character_all_that_is_certain_is_given_and_no_more(phrases, text):
    assert_certain_is_given(phrases, text)


@each_case("phrases", TRICKY)
def test_so_it_is_for_every_short_text(phrases):
    for chars in product("ab", repeat=7):
        assert_certain_is_given(phrases, "".join(chars))


@settings(max_examples=60)
@given(PHRASES, TEXTS.flatmap(split))
@example(["ab", "abc"], ["xab", "ab"])
@example(["ab", "abcd"], ["ab", "c"])
def test_any_split_gives_the_same_phrase_and_loses_nothing_after_it(phrases, pieces):
    finder = PhraseMatcher(PhraseAutomaton(phrases))
    text, left = "".join(pieces), [*pieces]
    sent = ""
    while left and finder.found is None:
        sent += finder.feed(left.pop(0))
    if finder.found is None:
        sent += finder.finish()
    assert (sent, finder.found) == whole(phrases, text)
    assert sent + (finder.found or "") + finder.rest + "".join(left) == text


def test_a_phrase_that_waited_is_given_up_to_at_the_end():
    finder = PhraseMatcher(PhraseAutomaton(["ab", "abcd"]))
    assert (finder.feed("xabc"), finder.found) == ("x", None)
    assert finder.finish() == ""
    assert (finder.found, finder.rest) == ("ab", "c")


def test_nothing_is_found_among_no_phrases():
    finder = PhraseMatcher(PhraseAutomaton([]))
    assert [finder.feed("a"), finder.feed(""), finder.finish()] == ["a", "", ""]
    assert finder.found is None


@each_case("char", [*string.punctuation, "\n", " ", "é", "😀"])
def test_a_phrase_is_no_pattern(char):
    finder = PhraseMatcher(PhraseAutomaton([char, "x" + char]))
    assert finder.feed("no" + char + "yes") == "no"
    assert (finder.found, finder.rest) == (char, "yes")


def test_an_empty_phrase_is_refused():
    with pytest.raises(ValueError, match="must not be empty"):
        PhraseAutomaton(["a", ""])


def test_finders_share_a_tree():
    tree = PhraseAutomaton(["ab"])
    one, other = PhraseMatcher(tree), PhraseMatcher(tree)
    assert [one.feed("a"), other.feed("b"), one.feed("c")] == ["", "b", "ac"]


def test_what_is_held_back_is_not_read_again():
    tree = CountingTree(["a" * 255 + "b", "a" * 200 + "c"])
    finder = PhraseMatcher(tree)
    assert "".join([finder.feed("a") for _ in range(1000)]) == "a" * 745
    assert tree.n_reads == 1000


def test_text_where_no_phrase_begins_is_read_in_one_step():
    tree = CountingTree(["yz"])
    assert PhraseMatcher(tree).feed("x" * 1000 + "y") == "x" * 1000
    assert PhraseMatcher(tree).feed("y" + "x" * 1000) == "y" + "x" * 1000
    assert tree.n_reads == 1 + 3
