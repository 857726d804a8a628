import pytest
from hypothesis import example, given, settings, strategies as st

from inferd.output.stops import StopMatcher
from tests.unit.output.oracle import settled, split, whole

STOPS = st.lists(st.text("ab", min_size=1, max_size=5), max_size=4)
TEXTS = st.text("abc", max_size=20)


def outcome(stops, pieces):
    matcher = StopMatcher(stops)
    sent = "".join([matcher.feed(piece) for piece in pieces]) + matcher.finish()
    return sent, matcher.matched


@settings(max_examples=60)
@given(STOPS, TEXTS.flatmap(split))
@example(["ab", "abb"], ["xab", "", "b"])
@example(["ab", "abb"], ["xab", "a"])
@example(["bb", "abba"], ["abbc", "a"])
def test_any_split_gives_the_same_text_and_the_same_match(stops, pieces):
    assert outcome(stops, pieces) == whole(stops, "".join(pieces))


@settings(max_examples=60)
@given(STOPS, TEXTS)
def test_only_what_may_become_a_stop_string_is_held_back(stops, text):
    matcher = StopMatcher(stops)
    sent = ""
    for size, char in enumerate(text, start=1):
        before = matcher.matched
        sent += matcher.feed(char)
        if before is None:
            assert (sent, matcher.matched) == settled(stops, text[:size])


def test_a_shorter_stop_string_waits_for_a_longer_one():
    matcher = StopMatcher(["ab", "abc"])
    assert (matcher.feed("xab"), matcher.matched) == ("x", None)
    assert (matcher.feed("c"), matcher.matched) == ("", "abc")


@pytest.mark.parametrize("after", ["d", "ab"])
def test_a_shorter_stop_string_counts_once_the_longer_cannot_be(after):
    matcher = StopMatcher(["ab", "abc"])
    assert matcher.feed("ab") == ""
    assert (matcher.feed(after), matcher.matched) == ("", "ab")


def test_a_shorter_stop_string_counts_at_the_end():
    assert outcome(["ab", "abc"], ["xab"]) == ("x", "ab")


def test_a_stop_string_waits_for_one_that_started_earlier():
    matcher = StopMatcher(["abcd", "bc"])
    assert (matcher.feed("abc"), matcher.matched) == ("", None)
    assert (matcher.feed("x"), matcher.matched) == ("a", "bc")
    assert (matcher.feed("x"), matcher.finish()) == ("", "")
    assert outcome(["abcd", "bc"], ["abc", "d"]) == ("", "abcd")


def test_nothing_is_given_after_a_stop_string():
    matcher = StopMatcher(["###", "x"])
    assert [matcher.feed(piece) for piece in ["a#", "##b", "c", "x"]] == [
        "a",
        "",
        "",
        "",
    ]
    assert (matcher.finish(), matcher.matched) == ("", "###")


def test_what_was_held_back_is_given_at_the_end():
    matcher = StopMatcher(["</s>"])
    assert [matcher.feed("a</"), matcher.feed("s"), matcher.finish()] == [
        "a",
        "",
        "</s",
    ]
    assert matcher.matched is None


def test_without_stop_strings_all_text_passes():
    assert outcome([], ["a", "", "b\n"]) == ("ab\n", None)


def test_an_empty_stop_string_is_refused():
    with pytest.raises(ValueError, match="must not be empty"):
        StopMatcher([""])
