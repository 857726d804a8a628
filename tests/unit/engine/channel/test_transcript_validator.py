import math

import pytest
from hypothesis import given, strategies as st

from inferd.engine.channel.transcript_validator import (
    MAX_OVERRUN_MS,
    MAX_PARTIAL_BYTES,
    TranscriptValidator,
)
from inferd.ipc.worker import Segment, Transcribed, TranscriptEnded
from inferd.wire.responses import Usage
from tests.cases import each_case
from tests.fakes.media import speech

MS_BYTES = 64
"""Bytes of a millisecond of sound."""
USAGE = Usage(prompt_tokens=1, completion_tokens=2)


def heard(n_ms: int) -> TranscriptValidator:
    """Of a job with so much sound."""
    transcript = TranscriptValidator.of(speech())
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
def test_segments_within_the_audio_are_accepted_and_no_others(n_ms, times):
    start_ms, end_ms = times
    fault = heard(n_ms).find_fault(said(start_ms, end_ms))
    assert (fault is None) is (start_ms <= end_ms <= n_ms + MAX_OVERRUN_MS)


@given(told=st.integers(0, 100), read=st.lists(st.integers(0, 120)))
def test_bytes_read_only_grow_and_do_not_exceed_those_sent(told, read):
    transcript, before = heard(0), 0
    transcript.appended(told)
    for n_bytes in read:
        fault = transcript.find_fault(Transcribed(ticket=1, n_bytes_read=n_bytes))
        assert (fault is None) is (n_bytes == 0 or before <= n_bytes <= told)
        if fault is None and n_bytes:
            before = n_bytes
        assert transcript.n_bytes_read == before <= told


@each_case(
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
def test_a_probability_is_between_0_and_1(share, is_one):
    assert (heard(0).find_fault(said(no_speech=share)) is None) is is_one
    assert (heard(0).find_fault(end(language_probability=share)) is None) is is_one


@pytest.mark.parametrize(
    ("partial", "is_believed"),
    [
        (Segment(text=b"x" * MAX_PARTIAL_BYTES, start_ms=0, end_ms=0), True),
        (Segment(text=b"x" * (MAX_PARTIAL_BYTES + 1), start_ms=0, end_ms=0), False),
        (Segment(text=b"x", start_ms=1, end_ms=0), False),
    ],
)
def test_provisional_text_is_checked_too(partial, is_believed):
    fault = heard(0).find_fault(Transcribed(ticket=1, partial=partial))
    assert (fault is None) is is_believed


@pytest.mark.parametrize(("audio_ms", "is_believed"), [(10, True), (70_000, False)])
def test_a_transcript_ends_no_later_than_the_audio(audio_ms, is_believed):
    assert (heard(1000).find_fault(end(audio_ms=audio_ms)) is None) is is_believed


def test_a_smaller_length_changes_nothing():
    transcript = heard(1000)
    transcript.appended(0)
    assert transcript.n_bytes == 1000 * MS_BYTES
