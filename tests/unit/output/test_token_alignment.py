from hypothesis import given, settings, strategies as st

from inferd.output.token_alignment import AlignedSpan, TokenAlignment

PIECES = st.lists(st.integers(0, 3), max_size=8)


def shares_of(*sizes):
    shares = TokenAlignment[str]()
    for name, size in zip("abcdefgh", sizes, strict=False):
        shares.add(name, size)
    return shares


def test_characters_are_taken_with_what_is_told_of_their_pieces():
    shares = shares_of(1, 2, 3)
    assert shares.take(1) == [AlignedSpan(("a",), 1)]
    assert shares.take(3) == [AlignedSpan(("b",), 2), AlignedSpan(("c",), 1)]
    assert shares.take(9) == [AlignedSpan((), 2)]
    assert shares.take(1) == []


def test_a_piece_without_a_character_goes_with_the_next():
    shares = shares_of(1, 0, 0, 1, 0)
    assert shares.take(1) == [AlignedSpan(("a",), 1)]
    assert shares.take(1) == [
        AlignedSpan(("b",), 0),
        AlignedSpan(("c",), 0),
        AlignedSpan(("d",), 1),
    ]
    assert shares.take(1) == [AlignedSpan(("e",), 0)]


def test_what_is_passed_over_is_dropped_but_for_a_piece_that_goes_on():
    shares = shares_of(1, 0, 2, 3)
    shares.skip(2)
    assert shares.take(1) == [AlignedSpan(("c",), 1)]
    shares.skip(1)
    shares.skip(1)
    assert shares.take(1) == [AlignedSpan(("d",), 1)]
    shares.skip(5)


def test_what_was_taken_with_its_beginning_is_not_taken_again():
    shares = shares_of(3)
    assert shares.take(1) == [AlignedSpan(("a",), 1)]
    shares.skip(1)
    assert shares.take(1) == [AlignedSpan((), 1)]


@settings(max_examples=60)
@given(PIECES, PIECES)
def test_no_piece_is_told_twice_and_no_character_lost(sizes, cuts):
    shares = shares_of(*sizes)
    taken = [share for cut in cuts for share in shares.take(cut)]
    names = "".join(name for share in taken for name in share.tokens)
    assert "abcdefgh".startswith(names)
    assert sum(share.n_chars for share in taken) == min(sum(cuts), sum(sizes))
