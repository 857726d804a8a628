import math

from hypothesis import given, strategies as st

from inferd.worker.whisper.transcribe.inference import Piece, TextToken
from inferd.worker.whisper.transcribe.segments import SegmentBuffer

TIMES = st.integers(0, 100_000)
WORDS = st.lists(st.binary(min_size=1, max_size=4), max_size=5)


def piece(words: list[bytes], start_ms: int = 0, end_ms: int = 0) -> Piece:
    tokens = tuple(TextToken(number, word) for number, word in enumerate(words))
    return Piece(b"".join(words), start_ms, end_ms, 0.5, tokens)


@given(st.lists(st.tuples(WORDS, TIMES, TIMES)), TIMES, TIMES)
def test_times_never_go_back_and_never_leave_the_sound(heard, first_ms, audio_ms):
    transcript = SegmentBuffer(1, None)
    for words, start_ms, end_ms in heard:
        added = piece(words, start_ms, end_ms)
        transcript.add(added, first_ms=first_ms, audio_ms=audio_ms)
    times = [
        time
        for segment in transcript.take().segments
        for time in (segment.start_ms, segment.end_ms)
    ]
    assert times == sorted(times)
    assert all(0 <= time <= audio_ms for time in times)


@given(st.lists(WORDS), st.integers(0, 20))
def test_no_more_tokens_are_told_than_are_wanted(heard, max_tokens):
    transcript, unbounded = SegmentBuffer(1, max_tokens), SegmentBuffer(1, None)
    for words in heard:
        for each in (transcript, unbounded):
            each.add(piece(words), first_ms=0, audio_ms=0)
    whole = b"".join(word for words in heard for word in words)
    told = b"".join(segment.text for segment in transcript.take().segments)
    assert transcript.n_tokens == min(unbounded.n_tokens, max_tokens)
    assert whole.startswith(told)
    assert transcript.is_full == (unbounded.n_tokens >= max_tokens)
    assert not unbounded.is_full


def test_what_was_told_is_not_told_again():
    transcript = SegmentBuffer(7, None)
    transcript.add(piece([b"a", b"b"], 0, 10), first_ms=100, audio_ms=1000)
    transcript.n_bytes_read = 64
    assert transcript.has_unsent
    told = transcript.take()
    assert (told.ticket, told.n_tokens, told.n_bytes_read) == (7, 2, 64)
    [segment] = told.segments
    assert (segment.text, segment.start_ms, segment.end_ms) == (b"ab", 100, 110)
    assert not transcript.has_unsent
    assert (transcript.take().segments, transcript.take().n_tokens) == ([], 0)


def test_a_piece_without_text_is_none():
    transcript = SegmentBuffer(1, None)
    transcript.add(piece([], 0, 10), first_ms=0, audio_ms=1000)
    assert not transcript.has_unsent


def test_log_probabilities_are_those_of_the_tokens_that_are_told():
    tokens = (TextToken(7, b"a", 0.5), TextToken(8, b"\xc3", 1.0), TextToken(9, b"b"))
    heard = Piece(b"a\xc3b", 0, 9, None, tokens)
    transcript = SegmentBuffer(1, 2, wants_logprobs=True)
    transcript.add(heard, first_ms=0, audio_ms=9)
    [segment] = transcript.take().segments
    told = [(each.id, each.bytes, each.logprob) for each in segment.logprobs]
    assert told == [(7, [97], math.log(0.5)), (8, [0xC3], 0.0)]
    silent = SegmentBuffer(1, None)
    silent.add(heard, first_ms=0, audio_ms=9)
    assert silent.take().segments[0].logprobs == []
