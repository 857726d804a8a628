import math
import os
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, strategies as st

from inferd.backend.job import GenerateJob, Media, Sampling, TranscribeJob, Turn
from inferd.config.kinds.mock import MockSettings
from inferd.ipc.worker import AudioNeeded, Failed, Transcribed, TranscriptEnded
from inferd.worker.mock.backend import SAMPLE_RATE, MockBackend
from inferd.worker.mock.speech import MOCK_READ_BYTES, MockTranscription
from tests.cases import each_case
from tests.fakes.fds import memfd, n_open

SECOND = bytes(4 * SAMPLE_RATE)
WORDS = (" One", " two")


def job(n_bytes: int, *, is_open: bool = False, **fields: Any) -> TranscribeJob:
    audio = Media(
        kind="audio",
        id="a",
        n_bytes=n_bytes,
        sample_rate=SAMPLE_RATE,
        is_open=is_open,
    )
    return TranscribeJob(audio=audio, **fields)


def dictation(sound: bytes, **fields: Any) -> MockTranscription:
    return MockTranscription(job(len(sound), **fields), memfd(sound), WORDS)


def heard(dictation: MockTranscription) -> Iterator[Any]:
    """Take steps while there is anything to do."""
    while dictation.is_busy:
        yield (outcome := dictation.step(1))
        if not isinstance(outcome, Transcribed):
            dictation.close()
            return


def end_of(dictation: MockTranscription) -> Any:
    return [*heard(dictation)][-1]


def test_its_transcript_is_the_script_a_second_for_each_token():
    outcomes = [*heard(dictation(3 * SECOND))]
    segments = [each for outcome in outcomes[:-1] for each in outcome.segments]
    assert [each.text for each in segments] == [b" One", b" two"]
    assert [(each.start_ms, each.end_ms) for each in segments] == [
        (0, 1000),
        (1000, 2000),
    ]
    end = outcomes[-1]
    assert isinstance(end, TranscriptEnded)
    assert (end.audio_ms, end.stop_reason, end.language) == (3000, "end", "en")
    assert (end.usage.prompt_tokens, end.usage.completion_tokens) == (150, 2)


@given(st.integers(0, 3 * SAMPLE_RATE))
def test_no_time_is_outside_of_the_audio(n_samples):
    *steps, end = heard(dictation(bytes(4 * n_samples)))
    times = [
        time for step in steps for s in step.segments for time in (s.start_ms, s.end_ms)
    ]
    assert times == sorted(times)
    assert all(time <= end.audio_ms for time in times)


def test_without_audio_there_is_no_text():
    [end] = heard(dictation(b""))
    assert (end.usage.completion_tokens, end.stop_reason) == (0, "end")


def test_it_stops_where_it_is_told_to():
    end = end_of(dictation(SECOND, max_tokens=1))
    assert (end.usage.completion_tokens, end.stop_reason) == (1, "length")


def test_a_language_is_detected_or_given():
    end = end_of(dictation(SECOND))
    assert (end.language, end.language_probability) == ("en", 1.0)
    end = end_of(dictation(SECOND, language="de"))
    assert (end.language, end.language_probability) == ("de", None)


@each_case("odd", [math.nan, math.inf, -math.inf, 1e9])
def test_a_sample_out_of_range_is_reported_by_its_index(odd):
    sound = bytes(MOCK_READ_BYTES) + struct.pack("<3f", 1, odd, math.nan)
    outcome = end_of(dictation(sound))
    assert isinstance(outcome, Failed)
    assert outcome.by_request
    number = MOCK_READ_BYTES // 4 + 1
    assert outcome.reason.startswith(f'attachment "a": sample {number} is ')


def test_open_audio_is_read_as_it_comes_and_transcribed_at_its_end():
    fd = memfd(bytes(5 * len(SECOND)))
    live = MockTranscription(job(0, is_open=True, wants_partials=True), fd, WORDS)
    assert not live.is_busy
    live.append(len(SECOND), is_last=False)
    [first] = heard(live)
    assert (first.partial.text, first.n_bytes_read) == (b" One", len(SECOND))
    live.append(3 * len(SECOND), is_last=True)
    second, *said, end = heard(live)
    assert second.n_bytes_read == 3 * len(SECOND)
    assert [each.segments[0].text for each in said] == [b" One", b" two"]
    assert end.audio_ms == 3000


# --- in the backend ---------------------------------------------------------------------


def backend(**settings: Any) -> MockBackend:
    return MockBackend(MockSettings(name="m", tokens=WORDS, **settings))


@pytest.mark.parametrize("ability", ["audio", "vision", "transcribe"])
def test_what_it_takes_is_as_configured(ability):
    able = backend(**{ability: True}).load(lambda _: None).capabilities
    assert getattr(able, ability)
    assert bool(able.audio_sample_rate) == (ability != "vision")
    plain = backend().load(lambda _: None).capabilities
    assert not getattr(plain, ability)
    assert not plain.audio_sample_rate


def test_a_backend_transcribes_several_at_once_and_closes_their_files():
    before, mock = n_open(), backend(transcribe=True)
    for ticket in (1, 2):
        prepared = mock.prepare(job(len(SECOND)), [memfd(SECOND)])
        assert prepared.prompt_tokens == 0
        mock.start(ticket, prepared)
    outcomes = []
    while mock.is_busy:
        outcomes += mock.step()
    ends = [each.ticket for each in outcomes if isinstance(each, TranscriptEnded)]
    assert sorted(ends) == [1, 2]
    assert n_open() == before


def test_a_dropped_transcription_sends_nothing():
    before, mock = n_open(), backend(transcribe=True)
    mock.start(1, mock.prepare(job(0, is_open=True), [memfd()]))
    assert mock.step() == [AudioNeeded(ticket=1, until_bytes=1)]
    assert not mock.is_busy
    mock.append_audio(1, 0, is_last=True)
    assert mock.is_busy
    mock.drop(1)
    assert not mock.is_busy
    assert n_open() == before
    mock.append_audio(1, 4, is_last=True)  # it is over


def test_a_job_that_writes_does_not_look_at_its_media():
    image = Media(kind="image", id="i", n_bytes=3, width=1, height=1)
    sampling = Sampling(temperature=0, top_p=1, top_k=0, seed=0)
    asked = GenerateJob(
        turns=[Turn("user", "#")],
        media=(image,),
        marker="#",
        max_tokens=9,
        sampling=sampling,
    )
    before, fd = n_open(), memfd(bytes(3))
    backend(vision=True).prepare(asked, [fd])
    assert n_open() == before
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
