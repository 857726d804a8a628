import json
import re

import pytest
from hypothesis import given, settings, strategies as st
from msgspec import UNSET

from inferd.client.transcripts import (
    FORMATS,
    RUNNING_TEXT,
    Transcript,
    TranscriptSegment,
    format_time,
    has_text,
    segment_of,
)
from inferd.wire.responses import (
    BlockFrame,
    ProgressFrame,
    TextDelta,
    ThinkingDelta,
    TokenFrame,
)
from inferd.wire.speech import TranscriptionFacts
from tests.cases import each_case


def said(start_ms, end_ms, text):
    return TranscriptSegment(start_ms=start_ms, end_ms=end_ms, text=text)


TWO = [said(0, 2500, "Ask not"), said(2500, 3_723_004, " what <you> & I --> can.")]

# --- what is read -----------------------------------------------------------------------


def test_text_that_has_a_time_is_a_segment():
    delta = TextDelta(" Hello", start_ms=10, end_ms=20, no_speech=0.25)
    assert segment_of(BlockFrame(id="r", block=delta)) == TranscriptSegment(
        start_ms=10, end_ms=20, text=" Hello", no_speech=0.25
    )


@each_case(
    "frame",
    [
        BlockFrame(id="r", block=TextDelta("a")),
        BlockFrame(id="r", block=ThinkingDelta("a")),
        ProgressFrame(id="r", status="partial", text="a", start_ms=0, end_ms=1),
        TokenFrame(id="r", content="a"),
    ],
)
def test_nothing_else_is_one(frame):
    assert segment_of(frame) is None


def test_the_text_of_a_transcript_is_that_of_its_segments():
    assert Transcript(segments=TWO).text == "Ask not what <you> & I --> can."


# --- what is written --------------------------------------------------------------------


@each_case(
    ("ms", "written"),
    [
        (0, "00:00:00.000"),
        (999, "00:00:00.999"),
        (59_999, "00:00:59.999"),
        (3_599_999, "00:59:59.999"),
        (3_600_000, "01:00:00.000"),
        (360_000_000, "100:00:00.000"),
    ],
)
def test_a_time_has_hours_minutes_seconds_and_milliseconds(ms, written):
    assert format_time(ms) == written


def written(kind, segments, facts=None):
    transcript = Transcript(segments=segments, facts=facts)
    return FORMATS[kind].whole("a.mp3", transcript)


def test_subrip_numbers_its_cues_and_has_commas_in_times():
    assert written("srt", TWO) == (
        "1\n00:00:00,000 --> 00:00:02,500\nAsk not\n\n"
        "2\n00:00:02,500 --> 01:02:03,004\nwhat <you> & I --> can.\n\n"
    )


def test_webvtt_has_a_header_and_escapes_what_it_would_read():
    assert written("vtt", TWO) == (
        "WEBVTT\n\n"
        "00:00:00.000 --> 00:00:02.500\nAsk not\n\n"
        "00:00:02.500 --> 01:02:03.004\nwhat &lt;you&gt; &amp; I --&gt; can.\n\n"
    )


def test_text_has_a_line_for_each_segment():
    assert written("txt", TWO) == "Ask not\nwhat <you> & I --> can.\n"


def test_word_segments_make_one_line():
    words = [said(0, 5, "Ask"), said(5, 5, " not"), said(5, 9, " what.")]
    assert RUNNING_TEXT.whole("", Transcript(segments=words)) == "Ask not what.\n"


def test_json_has_all_that_is_known():
    facts = TranscriptionFacts(language="en", audio_ms=11_000, real_time_factor=0.06)
    assert written("json", TWO[:1], facts) == (
        '{"file":"a.mp3","text":"Ask not",'
        '"segments":[{"start_ms":0,"end_ms":2500,"text":"Ask not"}],'
        '"language":"en","audio_ms":11000,"real_time_factor":0.06}\n'
    )


def test_json_of_an_answer_without_facts_has_none():
    assert json.loads(written("json", [])) == {
        "file": "a.mp3",
        "text": "",
        "segments": [],
    }


SUBTITLES = ["srt", "vtt"]


@each_case("kind", [*SUBTITLES, "txt"])
@each_case("text", ["", " ", "\n\n"])
def test_a_segment_without_text_is_left_out(kind, text):
    blank = said(5, 9, text)
    assert written(kind, [blank, *TWO, blank]) == written(kind, TWO)


@pytest.mark.parametrize("kind", SUBTITLES)
def test_a_cue_has_no_empty_line_and_lasts_a_moment(kind):
    text = written(kind, [said(7, 7, " two\n\n\u2028 lines\r")])
    assert re.search(r"00[,.]007 --> 00:00:00[,.]008\ntwo lines\n\n$", text)


SEGMENTS = st.lists(
    st.builds(
        TranscriptSegment,
        start_ms=st.integers(0, 2**40),
        end_ms=st.integers(0, 2**40),
        text=st.text(),
        no_speech=st.floats(0, 1) | st.just(UNSET),
    ),
    max_size=5,
)


@settings(max_examples=50)
@given(SEGMENTS)
def test_subtitles_have_a_cue_for_each_segment_with_text(segments):
    n_said = sum(map(has_text, segments))
    for kind in SUBTITLES:
        cues = written(kind, segments).removeprefix("WEBVTT\n\n").split("\n\n")
        assert [" --> " in cue for cue in cues] == [True] * n_said + [False]


@settings(max_examples=50)
@given(SEGMENTS)
def test_json_is_one_line_and_loses_nothing(segments):
    line = written("json", segments)
    assert line.count("\n") == 1
    again = [TranscriptSegment(**each) for each in json.loads(line)["segments"]]
    assert again == segments
