from hypothesis import given, strategies as st

from inferd.worker.whisper.transcribe.inference import Piece
from inferd.worker.whisper.transcribe.local_agreement import (
    CUT_AFTER_MS,
    KEPT_MS,
    MARGIN_MS,
    MAX_OPEN_MS,
    LocalAgreement,
)

WORD_MS = 400


def word(text: str, start_ms: int, end_ms: int, *, ends: bool = False) -> Piece:
    return Piece(text.encode(), start_ms, end_ms, None, (), ends)


def words(text: str, start_ms: int = 0) -> list[Piece]:
    """Have a word every 400 ms; a segment ends with a full stop."""
    return [
        word(f" {each}", start, start + WORD_MS, ends=each.endswith("."))
        for start, each in zip(
            range(start_ms, 10**9, WORD_MS), text.split(), strict=False
        )
    ]


def settled(agreed) -> bytes:
    return b"".join(piece.text for piece in agreed.settled)


def test_what_two_hearings_agree_on_is_settled():
    agreement = LocalAgreement()
    first = agreement.update(words("and so my yellow"), 5000, is_last=False)
    assert (settled(first), len(first.open)) == (b"", 4)
    second = agreement.update(words("and so, my fellow Americans"), 6000, is_last=False)
    assert settled(second) == b" and so, my"
    assert [piece.text for piece in second.open] == [b" fellow", b" Americans"]
    third = agreement.update(words("And so my fellow Americans"), 9000, is_last=True)
    assert (settled(third), third.open) == (b" fellow Americans", [])


def test_the_very_end_is_never_settled_by_agreement():
    agreement = LocalAgreement()
    for _ in range(2):
        agreement.update(words("one two three"), 1200, is_last=False)
    agreed = agreement.update(words("one two three"), 1200, is_last=False)
    assert (settled(agreed), len(agreed.open)) == (b"", 3)


def test_what_is_settled_is_not_told_again_when_it_is_heard_otherwise():
    agreement = LocalAgreement()
    for _ in range(2):
        agreement.update(words("one two three"), 5000, is_last=False)
    agreed = agreement.update(words("won two three four"), 5000, is_last=False)
    assert [piece.text for piece in agreed.open] == [b" four"]


def test_words_whose_times_have_moved_are_neither_lost_nor_told_twice():
    agreement = LocalAgreement()
    for _ in range(2):
        agreement.update(words("ask what"), 5000, is_last=False)
    late = [each._replace(start_ms=0, end_ms=9) for each in words("what you can do")]
    agreed = agreement.update(late, 6000, is_last=True)
    assert settled(agreed) == b" you can do"


@given(
    st.lists(
        st.sampled_from("abc"), max_size=(CUT_AFTER_MS - 1 - MARGIN_MS) // WORD_MS
    ),
    st.lists(st.sampled_from("abc")),
)
def test_what_is_heard_after_the_same_words_again_is_all_that_is_new(before, after):
    agreement = LocalAgreement()
    for _ in range(2):
        agreement.update(words(" ".join(before)), CUT_AFTER_MS - 1, is_last=False)
    agreed = agreement.update(
        words(" ".join(before + after)), CUT_AFTER_MS - 1, is_last=True
    )
    assert [piece.text.decode().strip() for piece in agreed.settled] == after


def test_a_settled_segment_is_not_heard_again():
    agreement = LocalAgreement()
    agreement.update(words("one two. three"), 9000, is_last=False)
    agreed = agreement.update(words("one two. three"), 9000, is_last=False)
    assert settled(agreed) == b" one two. three"
    assert agreed.start_ms == 2 * WORD_MS
    assert [piece.text for piece in agreed.dropped] == [b" one", b" two."]
    after = words("three four.", start_ms=2 * WORD_MS)
    agreed = agreement.update(after, 9000, is_last=True)
    assert settled(agreed) == b" four."


def test_of_settled_segments_none_is_heard_again():
    agreement = LocalAgreement()
    for _ in range(2):
        agreement.update(words("one. two. three"), 9000, is_last=False)
    assert agreement.start_ms == 2 * WORD_MS


def test_a_full_half_minute_is_settled_up_to_its_last_segment():
    agreement = LocalAgreement()
    heard = [*words("one two. three"), *words("half", MAX_OPEN_MS - WORD_MS)]
    agreed = agreement.update(heard, MAX_OPEN_MS, is_last=False)
    assert settled(agreed) == b" one two."
    assert agreed.start_ms == 2 * WORD_MS


def test_a_full_half_minute_without_a_segment_is_settled_word_by_word():
    agreement = LocalAgreement()
    heard = [*words("one two"), *words("half", MAX_OPEN_MS - WORD_MS)]
    agreed = agreement.update(heard, MAX_OPEN_MS, is_last=False)
    assert settled(agreed) == b" one two"
    assert agreed.start_ms == 2 * WORD_MS
    assert len(agreed.dropped) == 2


def test_after_long_it_goes_on_at_a_settled_word_and_tells_none_twice():
    agreement = LocalAgreement()
    agreement.update(words("one two three"), CUT_AFTER_MS - 1, is_last=False)
    agreed = agreement.update(words("one two three four"), CUT_AFTER_MS, is_last=False)
    assert settled(agreed) == b" one two three"
    assert agreed.start_ms == 3 * WORD_MS
    heard = words("two three four five", agreed.start_ms)
    agreed = agreement.update(heard, CUT_AFTER_MS + 1, is_last=True)
    assert settled(agreed) == b" four five"


def test_what_was_heard_before_was_said_before_whatever_its_time_is_now():
    agreement = LocalAgreement()
    agreement.update(words("one two"), 5000, is_last=False)
    late = [word(" one", 0, 400), word(" two", 8000, 9000)]
    agreed = agreement.update(late, CUT_AFTER_MS, is_last=False)
    assert [(each.start_ms, each.end_ms) for each in agreed.settled] == [
        (0, 400),
        (5000, 5000),
    ]
    assert agreed.start_ms == 5000


def test_half_a_minute_without_a_word_is_left_behind():
    agreement = LocalAgreement()
    agreed = agreement.update([], MAX_OPEN_MS - 1, is_last=False)
    assert agreed.start_ms == 0
    agreed = agreement.update([], MAX_OPEN_MS, is_last=False)
    assert agreed.start_ms == MAX_OPEN_MS - KEPT_MS


def test_what_is_heard_anew_from_further_on_is_open_no_more():
    agreement = LocalAgreement()
    heard = words("half", MAX_OPEN_MS - WORD_MS)
    agreed = agreement.update(heard, MAX_OPEN_MS, is_last=False)
    assert (agreed.settled, agreed.open) == ([], [])
    agreed = agreement.update(heard, MAX_OPEN_MS + 5000, is_last=False)
    assert agreed.settled == []


def test_a_full_half_minute_whose_words_take_no_time_is_not_heard_for_ever():
    agreement = LocalAgreement()
    agreed = agreement.update(
        [word(" one", 0, 0, ends=True)], MAX_OPEN_MS, is_last=False
    )
    assert settled(agreed) == b" one"
    assert agreed.start_ms == MAX_OPEN_MS - KEPT_MS


HEARINGS = st.lists(
    st.tuples(
        st.lists(
            st.tuples(st.sampled_from("abc"), st.integers(1, 9000), st.booleans()),
            max_size=8,
        ),
        st.integers(0, MAX_OPEN_MS),
    ),
    max_size=12,
)


@given(HEARINGS)
def test_whatever_is_heard_a_full_hearing_moves_on_and_the_rest_stays_open(hearings):
    agreement = LocalAgreement()
    for heard, length_ms in hearings:
        start_ms = agreement.start_ms
        now, pieces = start_ms, []
        for text, word_ms, ends in heard:
            pieces.append(word(text, now, now + word_ms, ends=ends))
            now += word_ms
        agreed = agreement.update(pieces, start_ms + length_ms, is_last=False)
        assert agreed.start_ms == agreement.start_ms >= start_ms
        if length_ms == MAX_OPEN_MS:
            assert agreed.start_ms > start_ms
        assert all(
            each.end_ms <= start_ms + length_ms - MARGIN_MS for each in agreed.settled
        )


@given(HEARINGS, st.integers(1, MAX_OPEN_MS - 1))
def test_the_last_hearing_leaves_nothing_open(hearings, length_ms):
    agreement = LocalAgreement()
    for heard, each_ms in hearings:
        pieces = words(" ".join(text for text, *_ in heard), agreement.start_ms)
        agreement.update(pieces, agreement.start_ms + each_ms, is_last=False)
    before_ms = agreement.start_ms
    last = words("a b c.", before_ms)
    agreed = agreement.update(last, agreement.start_ms + length_ms, is_last=True)
    assert agreed.open == []
    assert agreed.start_ms <= before_ms + length_ms
