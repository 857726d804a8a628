import pytest
from hypothesis import given, settings, strategies as st

from inferd.dialects.calls.string_tracker import (
    JsonStringTracker,
    MissedMarker,
    QuotedStringTracker,
    StringTracker,
    TaggedStringTracker,
)
from tests.cases import each_case
from tests.unit.output.oracle import split, states_of_json

QUOTE = '<|"|>'
TAG = "<parameter=a>\n"
FRAGMENTS = ["{", "}", "[", "]", '"', "\\", ":", "x", "\n", "<", "1"]
TAGS = [*FRAGMENTS, TAG, "<param", "eter=a>", ">", "\n</parameter>\n"]
QUOTES = [*FRAGMENTS, QUOTE, "<|", '"|>', ",", " "]
KINDS = {
    JsonStringTracker: FRAGMENTS,
    TaggedStringTracker: TAGS,
    lambda: QuotedStringTracker(QUOTE): QUOTES,
}
MARKER = "!"


def followed(strings: StringTracker, pieces: list[str]) -> StringTracker:
    """Feed text in which markers stand; those that are in no string are passed by."""
    for piece in pieces:
        before, *others = piece.split(MARKER)
        strings.feed(before)
        for each in others:
            if strings.is_open:
                strings.skip_marker(MARKER)
            strings.feed(MARKER if strings.is_open else "")
            strings.feed(each)
    return strings


@settings(max_examples=60)
@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_any_split_ends_in_the_same_place(kind, data):
    parts = st.lists(st.sampled_from([*KINDS[kind], MARKER]), max_size=12)
    text = data.draw(parts.map("".join))
    pieces = data.draw(split(text))
    whole, split_up = followed(kind(), [text]), followed(kind(), pieces)
    assert (split_up.is_open, split_up.missed) == (whole.is_open, whole.missed)


@settings(max_examples=60)
@given(st.lists(st.sampled_from(FRAGMENTS)).map("".join))
def test_strings_of_json_are_where_json_has_them(text):
    is_open = states_of_json(text)[-1] in ("string", "escaped")
    assert followed(JsonStringTracker(), [text]).is_open is is_open


@each_case(
    ("text", "is_open"),
    [
        ('f"', False),
        ('{"', True),
        ('{"a"', False),
        ('{"a\\"', True),
        ('{"a\\\\"', False),
        ('{"a": "b"} "', False),
        ('{"a": "b"}\n["', True),
        ('{"a\n"b', False),
        ('{b: "', False),
        ('[tru, 1e5, "', True),
    ],
)
def test_json_begins_with_a_bracket_and_ends_with_the_last_or_where_it_breaks(
    text, is_open
):
    assert followed(JsonStringTracker(), [text]).is_open is is_open


@each_case(
    ("text", "is_open"),
    [
        ('["', False),
        (TAG + '["', True),
        ('<parameter=a>{"', True),
        (TAG + '\n["', False),
        (TAG + ' ["', False),
        (TAG + 'x["', False),
        ('<parameter=\n["', False),
        (TAG + '["a"]\n</parameter>\n<parameter=b>\n{"', True),
        (TAG + '["a"] "', False),
        (TAG + "[x\n</parameter>\n" + TAG + '["', True),
    ],
)
def test_between_tags_only_what_begins_with_a_bracket_is_json(text, is_open):
    assert followed(TaggedStringTracker(), [text]).is_open is is_open


@each_case(
    ("text", "is_open"),
    [
        ("{a:", False),
        ("{a:" + QUOTE, True),
        (f'{{a:{QUOTE}"\n\\', True),
        (f"{{a:{QUOTE}{QUOTE}", False),
        (f"{{a:{QUOTE}b{QUOTE} ,c:{QUOTE}", True),
        (f"{{{QUOTE}a{QUOTE}:{QUOTE}", True),
    ],
)
def test_strings_stand_between_quotes(text, is_open):
    assert followed(QuotedStringTracker(QUOTE), [text]).is_open is is_open


@each_case(
    ("kind", "text", "broken"),
    [
        (JsonStringTracker, '{"a!b!c"}[x', None),
        (JsonStringTracker, '{"a!b!c"x', MissedMarker("!", 3, 9)),
        (JsonStringTracker, '[]{"!\n!', MissedMarker("!", 4, 6)),
        (JsonStringTracker, '{"a!', None),
        (TaggedStringTracker, TAG + '{"!"}\n</parameter>\n' + TAG + "[x", None),
        (TaggedStringTracker, TAG + '{"!"<', MissedMarker("!", 16, 19)),
        (lambda: QuotedStringTracker(QUOTE), f"{{a:{QUOTE}!{QUOTE} }} x", None),
        (
            lambda: QuotedStringTracker(QUOTE),
            f"{{a:{QUOTE}!{QUOTE} x",
            MissedMarker("!", 8, 16),
        ),
    ],
)
def test_a_marker_that_was_passed_over_counts_where_there_was_no_string(
    kind, text, broken
):
    assert followed(kind(), [text]).missed == broken
