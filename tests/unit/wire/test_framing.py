from itertools import takewhile
from sys import getsizeof
from time import thread_time

import pytest
from hypothesis import given, settings, strategies as st

from inferd.errors import FrameTooLargeError
from inferd.wire.framing import LineSplitter
from tests.unit.strategies import chunked

LINE = st.binary(max_size=20).map(lambda line: line.replace(b"\n", b""))


def frames_of(splitter: LineSplitter, data: bytes):
    splitter.feed(data)
    return list(iter(splitter.next_frame, None))


@settings(max_examples=60)
@given(st.lists(LINE, max_size=6), LINE, st.data())
def test_any_chunking_gives_the_same_frames(lines, rest, data):
    stream = b"".join(line + b"\n" for line in lines) + rest
    splitter = LineSplitter()
    received = [
        frame
        for chunk in data.draw(chunked(stream))
        for frame in frames_of(splitter, chunk)
    ]
    assert received == lines
    assert splitter.pending_bytes == len(rest)
    assert splitter.last_frame() == (rest or None)
    assert splitter.pending_bytes == 0


@settings(max_examples=60)
@given(st.lists(st.integers(0, 12), max_size=6), st.data())
def test_lines_pass_up_to_the_cap_and_none_from_the_first_over_it(sizes, data):
    stream = b"".join(b"x" * size + b"\n" for size in sizes)
    splitter, received, is_refused = LineSplitter(8), [], False
    try:
        for chunk in data.draw(chunked(stream)):
            splitter.feed(chunk)
            while (frame := splitter.next_frame()) is not None:
                received.append(len(frame))
    except FrameTooLargeError:
        is_refused = True
    assert received == list(takewhile(lambda size: size <= 8, sizes))
    assert is_refused == (max(sizes, default=0) > 8)


@pytest.mark.parametrize("ending", [b"", b"\n", b"\n{}\n"])
def test_a_line_over_the_cap_is_refused_ended_or_not(ending):
    splitter = LineSplitter(8)
    splitter.feed(b"x" * 9 + ending)
    with pytest.raises(FrameTooLargeError, match=r"^frame exceeds 8 byte cap$"):
        splitter.next_frame()


@pytest.mark.parametrize("ending", [b"", b"\n"])
def test_a_line_of_exactly_the_cap_is_accepted(ending):
    splitter = LineSplitter(8)
    splitter.feed(b"x" * 8 + ending)
    assert (splitter.next_frame() or splitter.last_frame()) == b"x" * 8


def test_the_cap_holds_for_the_second_line_of_one_read():
    splitter = LineSplitter(8)
    assert frames_of(splitter, b"12345678\n12345678\n") == [b"12345678"] * 2
    with pytest.raises(FrameTooLargeError):
        frames_of(splitter, b"1\n123456789")


def test_a_stream_over_the_cap_has_no_next_frame():
    splitter = LineSplitter(8)
    splitter.feed(b"x" * 9)
    for more in (b"", b"\n", b"{}\n"):
        splitter.feed(more)
        with pytest.raises(FrameTooLargeError):
            splitter.next_frame()


def test_a_last_line_over_the_cap_is_refused():
    splitter = LineSplitter(8)
    splitter.feed(b"x" * 9)
    with pytest.raises(FrameTooLargeError):
        splitter.last_frame()


def test_the_wires_own_cap_is_the_default():
    with pytest.raises(FrameTooLargeError, match="67108864 byte cap"):
        frames_of(LineSplitter(), bytes(64 * 1024 * 1024 + 1))


def test_an_empty_line_is_a_frame_and_no_bytes_are_a_clean_end():
    splitter = LineSplitter()
    assert frames_of(splitter, b"\n\n") == [b"", b""]
    assert splitter.last_frame() is None


def test_a_carriage_return_stays_with_its_line():
    assert frames_of(LineSplitter(), b"{}\r\n") == [b"{}\r"]


def test_a_splitter_works_on_after_the_last_frame():
    splitter = LineSplitter()
    assert frames_of(splitter, b"one\ntw") == [b"one"]
    assert splitter.last_frame() == b"tw"
    assert frames_of(splitter, b"three\n") == [b"three"]


@pytest.mark.parametrize("of", [bytes, bytearray, memoryview])
def test_any_kind_of_bytes_may_be_fed(of):
    splitter = LineSplitter()
    splitter.feed(of(b"one\n"))
    frame = splitter.next_frame()
    assert frame == b"one"
    assert type(frame) is bytes


@pytest.mark.alone
def test_dribbled_bytes_cost_linear_time():
    splitter = LineSplitter()
    splitter.feed(bytes(8 * 1024 * 1024))
    assert splitter.next_frame() is None
    begun = thread_time()
    for _ in range(1000):
        assert frames_of(splitter, b"x") == []
    assert thread_time() - begun < 0.1


def test_frames_that_were_taken_are_let_go():
    splitter = LineSplitter()
    for _ in range(100):
        assert frames_of(splitter, bytes(1000) + b"\n") == [bytes(1000)]
    splitter.feed(b"")
    assert len(splitter._buffer) == 0


def test_a_large_frame_that_was_taken_is_not_held_until_more_comes():
    splitter = LineSplitter()
    splitter.feed(b"x" * 10_000_000 + b"\nrest")
    assert len(splitter.next_frame() or b"") == 10_000_000
    assert getsizeof(splitter._buffer) < 100
    splitter.feed(b" of it\n")
    assert splitter.next_frame() == b"rest of it"
