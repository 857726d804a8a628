import pytest
from hypothesis import example, given, settings, strategies as st

from inferd.output.utf8 import TextDecoder
from tests.unit.strategies import chunked

MAYBE_TEXT = st.binary(max_size=24) | st.text(max_size=8).map(str.encode)
PARTS = st.lists(
    st.sampled_from([b"a", "é".encode(), "€".encode(), "😀".encode(), b"\x80"])
    | st.sampled_from([b"\xe2\x82", b"\xf0\x9f", b"\xff", b"\xed\xa0\x80", b"\xc0"]),
    max_size=8,
).map(b"".join)


def decoded(pieces):
    decoder = TextDecoder()
    return "".join([decoder.feed(piece) for piece in pieces]) + decoder.finish()


@settings(max_examples=60)
@given(st.one_of(MAYBE_TEXT, PARTS).flatmap(chunked))
@example([b"\xf0\x9f\x98", b"\x80"])
@example([b"\xf0\x9f", b"a"])
@example([b"\xe2\x82"])
def test_any_split_of_bytes_gives_the_same_text(pieces):
    assert decoded(pieces) == b"".join(pieces).decode("utf-8", "replace")


@given(st.text(max_size=20))
def test_a_character_is_given_with_its_last_byte(text):
    decoder = TextDecoder()
    for char in text:
        *first, last = [bytes([byte]) for byte in char.encode()]
        assert [decoder.feed(byte) for byte in first] == [""] * len(first)
        assert decoder.feed(last) == char
    assert decoder.finish() == ""


@pytest.mark.parametrize("rest", [b"\xf0", b"\xf0\x9f", b"\xf0\x9f\x98"])
def test_a_character_that_is_never_completed_is_one_replacement(rest):
    assert decoded([b"a", rest]) == "a\N{REPLACEMENT CHARACTER}"
