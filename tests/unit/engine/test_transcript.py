import math

import pytest
from hypothesis import given, strategies as st

from inferd.engine.transcript import OVERRUN_MS, PARTIAL_BYTES, Transcript
from inferd.ipc import Segment, Transcribed, TranscriptEnded
from inferd.wire.responses import Usage
from tests.fakes.media import speech

MS_BYTES = 64
"""Bytes of a millisecond of sound."""
USAGE = Usage(prompt_tokens=1, completion_tokens=2)


def heard(n_ms: int) -> Transcript:
    """Of a job with so much sound."""
    transcript = Transcript.of(speech())
    transcript.appended(n_ms * MS_BYTES)
    return transcript


def said(start_ms=0, end_ms=0, no_speech=None) -> Transcribed:
    segment = Segment(text=b"x", start_ms=start_ms, end_ms=end_ms, no_speech=no_speech)
    return Transcribed(ticket=1, segments=[segment])


def end(**fields) -> TranscriptEnded:
    whole = {"language": "en", "audio_ms": 0, "computing_ms": 1, **fields}
    return TranscriptEnded(ticket=1, stop_reason="end", usage=USAGE, **whole)


@given(
    n_ms=st.integers(0, 10**7),
    times=st.lists(st.integers(0, 2 * 10**7), min_size=2, max_size=2),
)
def test_what_is_said_inside_the_sound_is_believed_and_nothing_else(n_ms, times):
    start_ms, end_ms = times
    fault = heard(n_ms).fault_in(said(start_ms, end_ms))
    assert (fault is None) is (start_ms <= end_ms <= n_ms + OVERRUN_MS)


@given(told=st.integers(0, 100), read=st.lists(st.integers(0, 120)))
def test_what_is_read_only_grows_and_is_no_more_than_was_told(told, read):
    transcript, before = heard(0), 0
    transcript.appended(told)
    for n_bytes in read:
        fault = transcript.fault_in(Transcribed(ticket=1, n_bytes_read=n_bytes))
        assert (fault is None) is (n_bytes == 0 or before <= n_bytes <= told)
        if fault is None and n_bytes:
            before = n_bytes
        assert transcript.n_bytes_read == before <= told


@pytest.mark.parametrize(
    ("share", "is_one"),
    [
        (None, True),
        (0.0, True),
        (1.0, True),
        (1.1, False),
        (-0.1, False),
        (math.nan, False),
        (math.inf, False),
    ],
)
def test_a_probability_is_one(share, is_one):
    assert (heard(0).fault_in(said(no_speech=share)) is None) is is_one
    assert (heard(0).fault_in(end(language_probability=share)) is None) is is_one


@pytest.mark.parametrize(
    ("partial", "is_believed"),
    [
        (Segment(text=b"x" * PARTIAL_BYTES, start_ms=0, end_ms=0), True),
        (Segment(text=b"x" * (PARTIAL_BYTES + 1), start_ms=0, end_ms=0), False),
        (Segment(text=b"x", start_ms=1, end_ms=0), False),
    ],
)
def test_what_may_change_yet_is_judged_as_well(partial, is_believed):
    fault = heard(0).fault_in(Transcribed(ticket=1, partial=partial))
    assert (fault is None) is is_believed


@pytest.mark.parametrize(("audio_ms", "is_believed"), [(10, True), (70_000, False)])
def test_an_end_comes_no_later_than_the_sounds(audio_ms, is_believed):
    assert (heard(1000).fault_in(end(audio_ms=audio_ms)) is None) is is_believed


def test_what_was_told_stays_told():
    transcript = heard(1000)
    transcript.appended(0)
    assert transcript.n_bytes == 1000 * MS_BYTES
